-- Runs are deleted some time after their end.
create index runs_ended on runs (ended_at) where ended_at is not null;
