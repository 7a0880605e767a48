-- What the scheduler decides on: jobs, their runs, the slots they hold, the pods it intends.

create table nodes (
    node_id text primary key,
    pool text not null,
    device_type text not null,
    num_slots integer not null check (num_slots > 0),
    removed_at timestamptz,
    -- Nodes of one machine share its devices: slot n is the machine's device first_device + n. Null
    -- for nodes of a cluster, whose devices have no numbers of ours.
    first_device integer default 0 check (first_device >= 0),
    is_spot boolean,
    topology text,
    -- Why it takes no new runs.
    unschedulable text not null default ''
);

-- Each change of a job draws the next number. Whoever changes a column that a round of the scheduler
-- reads holds the writer lock until it commits, so numbers become visible in their order: all below
-- a number that was read have been read, or never will be.
create sequence job_changes;

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
    memory_bytes bigint,
    priority integer not null,
    state text not null,
    num_runs integer not null default 0,
    num_failures integer not null default 0,
    num_self_interruptions integer not null default 0,
    not_before_at timestamptz,
    waiting_reason text,
    cancel_requested_at timestamptz,
    cancel_reason text,
    queued_at timestamptz not null default clock_timestamp(),
    finished_at timestamptz,
    -- A job that never ran has no directories of pods: then it is when the job finished.
    pods_removed_at timestamptz,
    change bigint not null default nextval('job_changes'),
    -- What rounds decide on, so that none reads it out of the spec.
    retry_limit integer not null default 0,
    backoff_seconds double precision not null default 0,
    backoff_limit_seconds double precision not null default 0,
    -- The exception that ended the last run, and its step: the same one twice is not tried again.
    last_failure text not null default '',
    -- Runs in a row that the platform ended before they started: they use no retry, each waits longer.
    num_disruptions integer not null default 0,
    -- What was requested besides a cancel: stop or pause. A pause is over when the job is paused, so
    -- it stands here only while the run ends.
    requested text,
    requested_reason text,
    -- Whether a stop leaves a checkpoint.
    saves_last boolean not null default true,
    project text,
    -- What became of the last run, while the next one waits.
    last_run text not null default '',
    unique (tenant_id, request_id)
);
create index jobs_queue on jobs (pool, priority desc, submission, job_id) where state = 'queued';
create index jobs_to_tidy on jobs (finished_at desc)
    where finished_at is not null and pods_removed_at is null;
create index jobs_changed on jobs (change);

create function draw_job_change() returns trigger language plpgsql as $$
begin
    new.change := nextval('job_changes');
    return new;
end $$;
create trigger jobs_draw_change
    before update of state, num_runs, num_failures, num_self_interruptions, not_before_at,
        waiting_reason, cancel_requested_at, cancel_reason, requested, requested_reason, saves_last
    on jobs for each row execute function draw_job_change();

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
    -- The nodes of a live run that do not answer, as announced.
    unreachable text[] not null default '{}',
    -- Why it does not run yet, as announced: the cause, by whom, the sentence.
    waiting text[] not null default '{}',
    unique (job_id, attempt)
);
create unique index runs_live on runs (job_id) where ended_at is null;
-- A rendezvous port is held by one live run. All nodes are parts of one machine.
create unique index runs_port_held on runs (master_port) where ended_at is null;
-- Runs are deleted some time after their end.
create index runs_ended on runs (ended_at) where ended_at is not null;

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
    -- Which device of the machine it is, fixed at the grant: nodes may be divided in another way
    -- while pods live. Null for slots of CPUs, which are shared.
    device integer check (device >= 0),
    -- Was the node spot capacity at the grant? The release says the same.
    is_spot boolean not null default false,
    primary key (allocation_id, node_id, slot)
);
-- The database forbids double allocation: of a slot, and of a device by whatever node it was granted.
create unique index allocation_slots_held on allocation_slots (node_id, slot)
    where released_at is null;
create unique index allocation_slots_device_held on allocation_slots (device)
    where released_at is null and device is not null;
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
    -- Why the platform ended it, or did not start it, where its own exit does not tell.
    end_kind text,
    end_detail text,
    unique (run_id, index)
);

-- Of pods of live runs only.
create table heartbeats (
    pod_id text primary key,
    run_id text not null,
    phase text not null,
    step bigint,
    heard_at timestamptz not null default clock_timestamp()
);
create index heartbeats_of_run on heartbeats (run_id);

-- When the scheduler itself last saw each pod of a live run alive: it bounds what a pod may claim
-- about its end. Written every few seconds, for all pods by one statement.
create table sightings (
    pod_id text primary key,
    seen_at timestamptz not null
) with (fillfactor = 50);

-- Commands that came before the request for their job: another partition carried it.
create table early_commands (
    number bigint generated always as identity primary key,
    event_id text not null,
    job_id text not null,
    tenant_id text not null,
    reason text not null,
    correlation_id text,
    traceparent text,
    received_at timestamptz not null default clock_timestamp(),
    verb text not null,
    saves_last boolean not null
);
create index early_commands_of_job on early_commands (job_id);
-- One tenant's are counted apart from the others'.
create index early_commands_of_tenant on early_commands (tenant_id);

-- Budgets that are used up: no job that they cover gets a run.
create table budget_holds (
    tenant_id text not null,
    name text not null,
    study_id text,
    job_id text,
    detail text not null,
    project text,
    primary key (tenant_id, name)
);

-- What people say of a job after its submission. A job without a row has what its spec says.
create table annotations (
    job_id text primary key,
    tags jsonb not null,
    note text not null,
    project text
);
