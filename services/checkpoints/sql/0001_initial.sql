-- The catalogue of checkpoints, what is known of the jobs and runs they belong to, and what is to
-- be done at the object store.

-- A job may be here before its event: then the tenant is null, and its policy the default.
create table jobs (
    job_id text primary key,
    tenant_id text,
    keep_last integer not null default 3,
    keep_best integer not null default 1,
    metric text,
    goal text check (goal in ('minimize', 'maximize')),
    highest_fence bigint not null default 0
);

create table runs (
    run_id text primary key,
    job_id text not null,
    attempt integer not null,
    fence bigint not null,
    is_live boolean not null
);
create index runs_of_job on runs (job_id, fence);

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
    recorded_at timestamptz not null default clock_timestamp()
);
create index checkpoints_of_job on checkpoints (job_id);

-- What is to be done outside Postgres: intent -> act -> record. The same intent asked for again
-- while it is being carried out raises its revision, and is carried out once more.
create table intents (
    kind text not null check (kind in ('list', 'verify', 'restore', 'delete')),
    job_id text not null,
    subject text not null,
    facts jsonb not null default '{}',
    revision bigint not null default 1,
    due_at timestamptz not null default clock_timestamp(),
    tries integer not null default 0,
    primary key (kind, job_id, subject)
);
create index intents_due on intents (due_at);
