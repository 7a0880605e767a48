-- The catalogue of checkpoints, what is known of the jobs and runs they belong to, and what is to
-- be done at the object store.

-- A job may be here before its event: then the tenant is null, and its policy the default of the
-- contract (docs/decisions/0009-defaults.md).
create table jobs (
    job_id text primary key,
    tenant_id text,
    keep_last integer not null,
    keep_best integer not null,
    metric text,
    goal text check (goal in ('minimize', 'maximize')),
    highest_fence bigint not null default 0,
    every_seconds double precision,
    -- The newest list of its files that was announced.
    files_list text,
    -- The step that heartbeats name is recorded once per `every_steps`.
    every_steps bigint
);

create table runs (
    run_id text primary key,
    job_id text not null,
    attempt integer not null,
    fence bigint not null,
    is_live boolean not null,
    noted_at timestamptz not null default clock_timestamp(),
    saved_at timestamptz,
    ended_at timestamptz,
    first_step bigint,
    step bigint,
    -- When its resume was announced.
    restored_at timestamptz
);
create index runs_of_job on runs (job_id, fence);
create index runs_ended on runs (ended_at);

-- Rejected and deleted ones stay, so that a key is judged once and no listing brings one back.
create table checkpoints (
    checkpoint_id text primary key,
    job_id text not null,
    manifest_key text not null unique,
    run_id text not null,
    attempt integer not null,
    fence bigint not null,
    step bigint not null,
    state text not null check (state in ('good', 'rejected', 'deleting', 'deleted')),
    size_bytes bigint not null default 0,
    metrics jsonb not null default '{}',
    is_pinned boolean not null default false,
    may_lead boolean not null default false,
    -- When its bytes were last read and match. Null: only the sizes were compared.
    read_at timestamptz,
    -- When the state last changed.
    changed_at timestamptz not null default clock_timestamp()
);
-- A job's good or rejected ones are found without its deleted ones.
create index checkpoints_by_state on checkpoints (job_id, state);
-- Not of use for the good ones of one job, which would be looked for among those of all jobs.
create index checkpoints_by_read on checkpoints (read_at)
    where state = 'good' and read_at is not null;
create index checkpoints_deleted on checkpoints (changed_at) where state = 'deleted';

-- Shards whose bytes were read and match, of checkpoints that are being read.
create table read_shards (
    manifest_key text not null,
    shard_key text not null,
    primary key (manifest_key, shard_key)
);

-- Live runs that train on without new checkpoints.
create table failing_runs (
    run_id text primary key,
    reason text not null,
    failed_step bigint,
    -- The causes that were announced since the run last saved.
    announced text[] not null
);

-- Since when a blob was seen without a list that names it. It is deleted after an hour of that.
create table unnamed_blobs (
    job_id text not null,
    key text not null,
    seen_at timestamptz not null default clock_timestamp(),
    primary key (job_id, key)
);

-- What is to be done outside Postgres: intent -> act -> record. The same intent asked for again
-- while it is being carried out raises its revision, and is carried out once more.
create table intents (
    kind text not null
        check (kind in ('list', 'verify', 'read', 'restore', 'delete', 'tidy', 'files')),
    job_id text not null,
    subject text not null,
    facts jsonb not null default '{}',
    revision bigint not null default 1,
    due_at timestamptz not null default clock_timestamp(),
    tries integer not null default 0,
    primary key (kind, job_id, subject)
);
create index intents_due on intents (due_at) where kind <> 'read';
create index intents_reads on intents (due_at) where kind = 'read';
