-- The newest windows of each rank and pod, as the windows process folded them (core/windows.py).
create table windows (
    run_id text not null,
    source_id text not null,
    starts_at bigint not null,
    job_id text not null,
    attempt integer not null,
    rank integer,
    pod_id text,
    version bigint not null,
    series jsonb not null,
    first_at double precision,
    first_step bigint,
    last_at double precision,
    last_step bigint,
    received_at timestamptz not null default clock_timestamp(),
    primary key (run_id, source_id, starts_at)
);
create index windows_of_job on windows (job_id, starts_at);
create index windows_by_age on windows (received_at);

-- How far the windows of a run are judged, and what they said (core/health.py).
create table run_health (
    run_id text primary key,
    next_window bigint not null,
    health jsonb not null,
    created_at timestamptz not null default clock_timestamp()
);
create index run_health_by_age on run_health (created_at);
