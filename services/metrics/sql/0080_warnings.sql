-- The warnings that were emitted of each run, so that each is emitted once.
create table warnings (
    run_id text not null,
    number bigint not null,
    detail text not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (run_id, number)
);
create index warnings_by_age on warnings (created_at);
