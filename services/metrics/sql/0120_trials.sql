-- Trials that a search judges at rungs, until all are announced. `rungs` ascend; the first
-- `num_measured` of them are announced. `is_ended`: no run of the job is live.
create table trials (
    job_id text primary key,
    tenant_id text not null,
    study_id text not null,
    number integer not null,
    metric text not null,
    rungs bigint[] not null,
    num_measured integer not null default 0,
    is_ended boolean not null default false,
    finished_at timestamptz
);
create index trials_finished on trials (finished_at) where finished_at is not null;
