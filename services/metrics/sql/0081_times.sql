-- When runs were at which step, by the reports of their pods (services/metrics/core/clock.py): began
-- at; step and time of the last point in run_times; step and time of the newest.
alter table runs add column clock double precision[];
create index runs_of_job on runs (job_id);
create table run_times (
    job_id text not null,
    attempt integer not null,
    step bigint not null,
    at double precision not null,
    primary key (job_id, attempt, step)
);
