-- The rungs that a trial will be judged at, the last verdict, and the request that asked for it.
alter table trials
    add column rungs jsonb,
    add column verdict text,
    add column request_id text;
create index trials_asked_for on trials (study_id, request_id) where request_id is not null;
