-- Misuses that the pods of a run have warned of.
create table warnings (
    run_id text not null,
    number bigint not null,
    job_id text not null,
    attempt bigint not null,
    warning text not null,
    detail text not null,
    primary key (run_id, number)
);
create index warnings_of_job on warnings (job_id, attempt desc);
