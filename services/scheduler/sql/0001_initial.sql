-- What the scheduler decides on: jobs, their runs, the slots they hold, the pods it intends.

create table nodes (
    node_id text primary key,
    pool text not null,
    device_type text not null,
    num_slots integer not null check (num_slots > 0),
    removed_at timestamptz
);

create table jobs (
    job_id text primary key,
    tenant_id text not null,
    request_id text not null,
    submission bigint generated always as identity,
    -- The command that was accepted; events about the job carry on its correlation and trace.
    command_event_id text not null,
    correlation_id text,
    traceparent text,
    -- JSON as text: jsonb would change numbers and refuse some strings.
    spec text not null,
    trial text,
    pool text not null,
    device_type text,
    devices integer not null check (devices > 0),
    priority integer not null,
    state text not null,
    num_runs integer not null default 0,
    num_failures integer not null default 0,
    num_self_interruptions integer not null default 0,
    not_before_at timestamptz,
    waiting_reason text,
    waiting_position integer,
    cancel_requested_at timestamptz,
    cancel_reason text,
    queued_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    pods_removed_at timestamptz,
    unique (tenant_id, request_id)
);
create index jobs_queue on jobs (pool, priority desc, submission, job_id) where state = 'queued';
create index jobs_to_tidy on jobs (finished_at desc)
    where finished_at is not null and pods_removed_at is null;

-- Fences only grow, whatever job they are drawn for.
create sequence fences;

create table runs (
    run_id text primary key,
    job_id text not null references jobs,
    attempt integer not null,
    fence bigint not null,
    state text not null,
    master_port integer not null,
    device_type text not null,
    stop_reason text,
    granted_at timestamptz not null,
    started_at timestamptz,
    ended_at timestamptz,
    unique (job_id, attempt)
);
create unique index runs_live on runs (job_id) where ended_at is null;

create table allocations (
    allocation_id text primary key,
    run_id text not null unique references runs,
    job_id text not null references jobs,
    pool text not null,
    device_type text not null,
    granted_at timestamptz not null,
    released_at timestamptz check (released_at >= granted_at)
);
create unique index allocations_held on allocations (job_id) where released_at is null;

create table allocation_slots (
    allocation_id text not null references allocations,
    node_id text not null references nodes,
    slot integer not null,
    released_at timestamptz,
    primary key (allocation_id, node_id, slot)
);
-- The database forbids double allocation.
create unique index allocation_slots_held on allocation_slots (node_id, slot)
    where released_at is null;
create index allocation_slots_released on allocation_slots (node_id, slot, released_at);

-- Intent rows: written with the grant, acted on by the launcher, then recorded here.
create table pods (
    pod_id text primary key,
    run_id text not null references runs,
    index integer not null,
    node_id text not null references nodes,
    first_rank integer not null,
    num_ranks integer not null check (num_ranks > 0),
    state text not null default 'intended',
    launches integer not null default 0,
    was_alive boolean not null default false,
    exit text,
    finished_at timestamptz,
    unique (run_id, index)
);

create table heartbeats (
    pod_id text primary key,
    run_id text not null,
    phase text not null,
    step bigint,
    heard_at timestamptz not null default clock_timestamp()
);
create index heartbeats_of_run on heartbeats (run_id);
