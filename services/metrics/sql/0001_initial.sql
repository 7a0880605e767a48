-- Samples, logs and the standing of runs. Steps and values travel and rest in columns: one row of
-- `chunks` is what one batch held of one series.

-- Every batch that was taken; sent again, it adds nothing.
create table batches (
    run_id text not null,
    rank integer not null,
    session text not null,
    batch bigint not null,
    stream text not null check (stream in ('samples', 'logs')),
    received_at timestamptz not null default clock_timestamp(),
    primary key (run_id, rank, session, batch, stream)
);

create table chunks (
    id bigint generated always as identity primary key,
    job_id text not null,
    run_id text not null,
    attempt integer not null,
    rank integer not null,
    series text not null,
    num_samples integer not null,
    min_step bigint not null,
    max_step bigint not null,
    steps bigint[] not null,
    values double precision[] not null,
    received_at timestamptz not null default clock_timestamp()
);
create index chunks_of_series on chunks (job_id, rank, series, max_step);

-- What a run has of each series, without reading its chunks.
create table series (
    run_id text not null,
    rank integer not null,
    name text not null,
    job_id text not null,
    attempt integer not null,
    num_samples bigint not null,
    last_step bigint not null,
    last_value double precision not null,
    primary key (run_id, rank, name)
);
create index series_of_job on series (job_id, rank);

-- How many lines a job has; its row lock gives each line its position, so that positions become
-- visible in their order and a reader that follows them misses none.
create table log_heads (
    job_id text primary key,
    num_lines bigint not null,
    num_dropped_bytes bigint not null
);

create table log_chunks (
    job_id text not null,
    run_id text not null,
    attempt integer not null,
    rank integer not null,
    session text not null,
    batch bigint not null,
    first_position bigint not null,
    end_position bigint not null,
    first_line bigint not null,
    lines text[] not null,
    received_at timestamptz not null default clock_timestamp(),
    primary key (run_id, rank, session, batch)
);
create index log_chunks_of_job on log_chunks (job_id, end_position);
create index log_chunks_of_rank on log_chunks (job_id, rank, end_position);

-- Runs: their state from events.jobs, their progress from heartbeats by the time of receipt on our
-- clock. A heartbeat may be here before the event: then the state is null.
create table runs (
    run_id text primary key,
    job_id text not null,
    tenant_id text not null,
    attempt integer not null,
    state text,
    heard_at double precision,
    step bigint,
    moved_at double precision,
    still_seconds double precision not null default 0,
    step_seconds double precision[] not null default '{}'
);

-- What was alerted; `series` is '' where the alert is about the run.
create table alerts (
    run_id text not null,
    alert text not null,
    series text not null,
    raised_at timestamptz not null default clock_timestamp(),
    cleared_at timestamptz,
    primary key (run_id, alert, series)
);
