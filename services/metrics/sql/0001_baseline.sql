-- Samples, logs, media and the standing of runs. Steps and values travel and rest in columns: one
-- row of `chunks` is what one batch held of one series.

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
create index batches_by_age on batches (received_at);

-- Not compressed: pglz took most of what a chunk costs Postgres, and saves a third of the bytes until
-- a chunk is in a Parquet file.
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
    steps bigint[] storage external not null,
    values double precision[] storage external not null,
    received_at timestamptz not null default clock_timestamp(),
    -- Not in the levels yet, and may be merged with its neighbours.
    is_new boolean not null default true
);
create index chunks_of_series on chunks (job_id, rank, series, max_step);
-- A poll reads the chunks after a position.
create index chunks_by_arrival on chunks (job_id, rank, series, id);
create index chunks_new on chunks (run_id, rank, series, id) where is_new;
-- Those that may be old enough for the object store.
create index chunks_by_age on chunks (received_at) where not is_new;

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
    first_step bigint not null default 0,
    -- The width of level 0; null while the series is so short that its samples are read instead.
    base_width bigint,
    -- When the newest sample arrived that was moved to the object store.
    cold_at timestamptz,
    primary key (run_id, rank, name)
);
create index series_of_job on series (job_id, rank, name);
create index series_cold on series (cold_at) where cold_at is not null;
-- What pods say of themselves, over all ranks of a job, whatever else these log.
create index series_of_system on series (job_id, rank, name) where name like 'system/%';

-- The names of a job's series, of all runs and ranks: their number is bounded.
create table series_names (
    job_id text not null,
    name text not null,
    primary key (job_id, name)
);

-- Locked while names are added. Samples of names beyond the bound are left out and counted.
create table sample_heads (
    job_id text primary key,
    num_names integer not null default 0,
    num_samples_left_out bigint not null default 0
);

-- Sums of samples in buckets of steps, kept as samples arrive: a chart of a long series reads these.
-- A row is a tile of 64 buckets of one width; widths grow by four from level to level.
create table levels (
    run_id text not null,
    rank integer not null,
    series text not null,
    level smallint not null,
    tile bigint not null,
    first_steps bigint[] not null,
    last_steps bigint[] not null,
    num_finite integer[] not null,
    lows double precision[] not null,
    highs double precision[] not null,
    means double precision[] not null,
    not_finite_steps bigint[] not null,
    primary key (run_id, rank, series, level, tile)
);

-- Old samples rest in Parquet files of the object store. A file is written, read back and only then
-- recorded, in the transaction that deletes its chunks: state `writing` is an intent.
create table cold_files (
    id bigint generated always as identity primary key,
    key text not null unique,
    state text not null check (state in ('writing', 'stored', 'deleting')),
    created_at timestamptz not null default clock_timestamp(),
    -- Of a stored file: where its footer begins, and when the newest of its samples arrived.
    size_bytes bigint not null default 0,
    footer_offset bigint not null default 0,
    num_samples bigint not null default 0,
    newest_at timestamptz
);
create index cold_files_unfinished on cold_files (id) where state <> 'stored';
create index cold_files_by_age on cold_files (newest_at) where state = 'stored';

-- Which rows of which row group are of one series of one run.
create table cold_chunks (
    job_id text not null,
    rank integer not null,
    series text not null,
    file_id bigint not null,
    row_group integer not null,
    first_row integer not null,
    run_id text not null,
    attempt integer not null,
    num_samples integer not null,
    min_step bigint not null,
    max_step bigint not null,
    -- The number of the last chunk that went into it, so that polls miss none.
    newest_chunk bigint not null,
    primary key (job_id, rank, series, file_id, row_group, first_row)
);
create index cold_chunks_of_file on cold_chunks (file_id);

-- How many lines a job has; its row lock gives each line its position, so that positions become
-- visible in their order and a reader that follows them misses none.
create table log_heads (
    job_id text primary key,
    num_lines bigint not null,
    num_dropped_bytes bigint not null,
    -- The bytes of its lines in the object store, and how many of its first lines were deleted.
    num_cold_bytes bigint not null default 0,
    num_deleted_lines bigint not null default 0
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
    -- What a search reads before it reads lines.
    max_level smallint not null,
    size_bytes integer not null,
    primary key (run_id, rank, session, batch)
);
create index log_chunks_of_job on log_chunks (job_id, end_position);
create index log_chunks_of_rank on log_chunks (job_id, rank, end_position);

-- Jobs with lines in log_chunks, until they are moved.
create table log_hot (
    job_id text primary key,
    num_bytes bigint not null,
    num_chunks bigint not null,
    written_at timestamptz not null
);

-- Lines of ended jobs, and older ones of a job with very many, rest in the object store. A segment
-- holds the lines from one position to before another. It is written, read back and only then
-- recorded, in the transaction that deletes its chunks: state `writing` is an intent.
create table log_segments (
    id bigint generated always as identity primary key,
    job_id text not null,
    key text not null unique,
    state text not null check (state in ('writing', 'stored', 'deleting')),
    created_at timestamptz not null default clock_timestamp(),
    first_position bigint not null,
    end_position bigint not null,
    -- Of a stored one: the bytes of its lines, and when the first and the last of them arrived.
    num_bytes bigint not null default 0,
    first_at timestamptz,
    last_at timestamptz,
    -- Of each block, which is compressed by itself: where its lines end, its bytes in the object and
    -- unpacked, and the highest level in it.
    block_ends bigint[],
    block_sizes integer[],
    block_bytes integer[],
    block_levels smallint[]
);
create index log_segments_of_job on log_segments (job_id, end_position) where state = 'stored';
create index log_segments_by_age on log_segments (last_at) where state = 'stored';
create index log_segments_unfinished on log_segments (id) where state <> 'stored';

-- What programs log besides numbers. The bytes are in the object store, named by their SHA-256.
create table media (
    job_id text not null,
    name text not null,
    step bigint not null,
    attempt bigint not null,
    item bigint not null,
    number bigint not null,
    media text not null,
    image_form text,
    sha256 text not null,
    size_bytes bigint not null,
    caption text not null,
    file_name text,
    logged_at timestamptz not null,
    primary key (job_id, name, step, attempt, item)
);

-- How many media a job has; it is locked while rows are added, so that the limit holds. Media are
-- deleted some time after the job's end.
create table media_heads (
    job_id text primary key,
    num_items bigint not null default 0,
    tenant_id text,
    written_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz,
    -- The rows are gone, the objects are to be deleted; then they are.
    deleting_at timestamptz,
    deleted_at timestamptz
);
create index media_heads_to_delete on media_heads (ended_at)
    where num_items > 0 and deleting_at is null;
create index media_heads_deleting on media_heads (job_id)
    where deleting_at is not null and deleted_at is null;
create index media_heads_without_media on media_heads (coalesce(deleted_at, ended_at))
    where num_items = 0 or deleted_at is not null;

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
    step_seconds double precision[] not null default '{}',
    named_at double precision,
    created_at timestamptz not null default clock_timestamp(),
    -- When it was at which step (services/metrics/core/clock.py): began at; step and time of the last
    -- point in run_times; step and time of the newest.
    clock double precision[],
    -- It can have as many ranks. Null: not known.
    num_slots integer
);
create index runs_of_job on runs (job_id);
create index runs_by_age on runs (created_at);

-- When runs were at which step, by the reports of their pods.
create table run_times (
    job_id text not null,
    attempt integer not null,
    step bigint not null,
    at double precision not null,
    primary key (job_id, attempt, step)
);

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

-- What was alerted; `series` is '' where the alert is about the run.
create table alerts (
    run_id text not null,
    alert text not null,
    series text not null,
    raised_at timestamptz not null default clock_timestamp(),
    cleared_at timestamptz,
    primary key (run_id, alert, series)
);
create index alerts_by_age on alerts (raised_at);

-- The warnings that were emitted of each run, so that each is emitted once.
create table warnings (
    run_id text not null,
    number bigint not null,
    detail text not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (run_id, number)
);
create index warnings_by_age on warnings (created_at);

-- The newest description that was emitted of each run, so that each is emitted once.
create table descriptions (
    run_id text primary key,
    number bigint not null,
    created_at timestamptz not null default clock_timestamp()
);
create index descriptions_by_age on descriptions (created_at);

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

-- Events that webhooks and lineage endpoints are to get: a row is there until its receiver has
-- answered, or is given up.
create table deliveries (
    id bigint generated always as identity primary key,
    webhook text not null,
    event_id text not null,
    body text not null,
    num_tries integer not null default 0,
    not_before timestamptz not null default clock_timestamp(),
    created_at timestamptz not null default clock_timestamp(),
    -- What it is about, and whether it tells of its begin or its end: an end is not sent before its
    -- begin. Null where it waits for nothing.
    about text,
    is_begin boolean,
    unique (webhook, event_id)
);
create index deliveries_due on deliveries (webhook, not_before);
create index deliveries_in_order on deliveries (webhook, id);
create index deliveries_by_subject on deliveries (webhook, about, id) where about is not null;
create index deliveries_by_age on deliveries (created_at);

-- Which alerts nobody is called for, until when. A row goes when its silence is ended.
create table silences (
    silence_id text primary key,
    tenant_id text not null,
    alert text,
    job_id text,
    project text,
    ends_at timestamptz not null,
    reason text not null,
    created_at timestamptz not null
);
create index silences_of_tenant on silences (tenant_id, ends_at);
create index silences_by_age on silences (ends_at);

-- The project that each live job is part of, and what of it is watched for its alerts
-- (services/metrics/core/watched.py).
create table watched_jobs (
    job_id text primary key,
    project text,
    losses text[] not null,
    stalled_seconds double precision,
    rules text,
    finished_at timestamptz
);
create index watched_jobs_by_age on watched_jobs (finished_at) where finished_at is not null;

-- Deliveries of silenced alerts: sent once the silence is over, if the alert is still open then.
create table held_deliveries (
    id bigint generated always as identity primary key,
    webhook text not null,
    event_id text not null,
    body text not null,
    tenant_id text not null,
    job_id text not null,
    run_id text not null,
    alert text not null,
    held_until timestamptz not null,
    unique (webhook, event_id)
);
create index held_deliveries_due on held_deliveries (webhook, held_until);
create index held_deliveries_of_alert on held_deliveries (run_id, alert);
create index held_deliveries_of_tenant on held_deliveries (tenant_id);
create index held_deliveries_by_age on held_deliveries (held_until);

-- What is sent to lineage endpoints; rows are made only where one is configured.
create table lineage_jobs (
    job_id text primary key,
    facts text not null,
    finished_at timestamptz
);
create index lineage_jobs_by_age on lineage_jobs (finished_at) where finished_at is not null;

-- `is_told`: its START is written. `told_at`: when a RUNNING was last. `data`: what it says it uses.
create table lineage_runs (
    run_id text primary key,
    began_at timestamptz not null,
    is_told boolean not null default false,
    told_at timestamptz not null default clock_timestamp(),
    data text not null default '[]',
    ended_at timestamptz
);
create index lineage_runs_by_age on lineage_runs (ended_at) where ended_at is not null;

-- Checkpoints that a run went on from (`is_input`), and those it saved.
create table lineage_checkpoints (
    run_id text not null,
    checkpoint_id text not null,
    is_input boolean not null,
    step bigint not null,
    size_bytes bigint,
    num_shards integer,
    created_at timestamptz not null default clock_timestamp(),
    primary key (run_id, is_input, checkpoint_id)
);
create index lineage_checkpoints_by_age on lineage_checkpoints (created_at);
