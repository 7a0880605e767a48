-- When the release was read: after an outage, long after it happened.
alter table allocations add column release_noted_at timestamptz;
