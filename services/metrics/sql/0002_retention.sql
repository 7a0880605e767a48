-- Retention looks for what is old enough.
alter table runs add column created_at timestamptz not null default clock_timestamp();
create index runs_by_age on runs (created_at);
create index batches_by_age on batches (received_at);
create index alerts_by_age on alerts (raised_at);
