-- The newest description that was emitted of each run, so that each is emitted once.
create table descriptions (
    run_id text primary key,
    number bigint not null,
    created_at timestamptz not null default clock_timestamp()
);
create index descriptions_by_age on descriptions (created_at);
