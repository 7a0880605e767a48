-- The read model: what every event said, laid out for reading. All of it can be rebuilt from the
-- topics, but for the two tables at the end. No foreign keys: across topics nothing comes in order.

-- One row. A new schema is a new generation, so readers of the stream notice a rebuild. The row
-- lock on last_cursor, held until commit, makes cursors grow in commit order, without a gap.
create table stream (
    singleton boolean primary key default true check (singleton),
    generation text not null default substr(replace(gen_random_uuid()::text, '-', ''), 1, 12),
    last_cursor bigint not null default 0
);
insert into stream default values;

create table timeline (
    cursor bigint primary key,
    source text not null,
    event_id text not null,
    type text not null,
    tenant_id text not null,
    job_id text,
    study_id text,
    node_id text,
    occurred_at timestamptz not null,
    seq bigint not null,
    payload jsonb not null,
    unique (source, event_id)
);
create index timeline_of_job on timeline (job_id, occurred_at, seq, event_id);
create index timeline_of_study on timeline (study_id, occurred_at, seq, event_id);

create table jobs (
    job_id text primary key,
    tenant_id text not null,
    request_id text,
    name text,
    spec jsonb,
    state text not null default 'submitted',
    -- seq of the newest event that changed state; an older one that comes late changes nothing.
    state_seq bigint not null default 0,
    state_at timestamptz,
    submitted_at timestamptz,
    queued_at timestamptz,
    listed_at timestamptz not null
        generated always as (coalesce(queued_at, submitted_at, timestamptz 'epoch')) stored,
    started_at timestamptz,
    finished_at timestamptz,
    run_id text,
    attempt integer,
    study_id text,
    trial_number integer,
    is_cancelling boolean not null default false,
    waiting_reason text,
    waiting_detail text,
    queue_position integer,
    holders jsonb,
    not_before_at timestamptz,
    detail text,
    result jsonb
);
create index jobs_listed on jobs (listed_at desc, job_id);
create index jobs_of_study on jobs (study_id);

create table job_progress (
    job_id text primary key,
    run_id text not null,
    attempt integer not null,
    fence bigint not null,
    phase text not null,
    step bigint,
    max_steps bigint,
    epoch bigint,
    num_dropped_samples bigint not null,
    num_dropped_log_bytes bigint not null,
    first_step bigint,
    first_step_at timestamptz,
    step_at timestamptz,
    heard_at timestamptz not null
);

create table runs (
    run_id text primary key,
    job_id text not null,
    attempt integer not null,
    fence bigint not null,
    state text not null,
    state_seq bigint not null,
    allocation_id text,
    num_pods integer,
    starting_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    exit_code integer,
    signal integer,
    rank integer,
    detail text,
    last_log text
);
create index runs_of_job on runs (job_id, attempt);

create table allocations (
    allocation_id text primary key,
    tenant_id text not null,
    job_id text not null,
    run_id text not null,
    attempt integer not null,
    pool text not null,
    device_type text not null,
    num_slots integer not null,
    granted_at timestamptz not null,
    released_at timestamptz
);
create index allocations_held on allocations (allocation_id) where released_at is null;

create table allocation_slots (
    allocation_id text not null,
    node_id text not null,
    slot integer not null,
    primary key (allocation_id, node_id, slot)
);

create table nodes (
    node_id text primary key,
    pool text,
    device_type text,
    num_slots integer not null default 0,
    state_seq bigint not null,
    registered_at timestamptz,
    removed_at timestamptz,
    removed_reason text
);

create table checkpoints (
    checkpoint_id text primary key,
    tenant_id text not null,
    job_id text not null,
    run_id text not null,
    attempt integer not null,
    fence bigint not null,
    step bigint not null,
    epoch bigint,
    manifest_key text,
    size_bytes bigint,
    num_shards integer,
    metrics jsonb,
    committed_at timestamptz,
    -- seq of its commit where it was the best so far; the highest of a job is the best.
    best_seq bigint,
    is_pinned boolean not null default false,
    rejected_reason text,
    rejected_detail text,
    deleted_at timestamptz,
    deleted_reason text,
    restored_at timestamptz,
    restored_by_attempt integer
);
create index checkpoints_of_job on checkpoints (job_id, fence, step);

create table charges (
    charge_id text primary key,
    tenant_id text not null,
    job_id text not null,
    run_id text not null,
    num_slots integer not null,
    starts_at timestamptz not null,
    ends_at timestamptz not null,
    amount_micro_usd bigint not null
);
create index charges_of_job on charges (job_id);

create table studies (
    study_id text primary key,
    tenant_id text not null,
    request_id text,
    name text,
    spec jsonb,
    num_trials integer,
    state text not null default 'submitted',
    submitted_at timestamptz,
    started_at timestamptz,
    listed_at timestamptz not null
        generated always as (coalesce(started_at, submitted_at, timestamptz 'epoch')) stored,
    finished_at timestamptz,
    best_number integer,
    best_value double precision
);
create index studies_listed on studies (listed_at desc, study_id);

create table trials (
    study_id text not null,
    number integer not null,
    job_id text not null,
    hyperparameters jsonb not null,
    state text not null,
    state_seq bigint not null,
    value double precision,
    detail text,
    primary key (study_id, number)
);

-- Refused commands, found by the id of the command.
create table rejections (
    command_event_id text primary key,
    subject_id text not null,
    reason text not null,
    detail text not null,
    errors jsonb not null,
    occurred_at timestamptz not null,
    seq bigint not null
);
create index rejections_of_subject on rejections (subject_id);

create table alerts (
    run_id text not null,
    alert text not null,
    job_id text not null,
    attempt integer not null,
    state_seq bigint not null,
    series text,
    step bigint,
    detail text not null,
    raised_at timestamptz,
    cleared_at timestamptz,
    primary key (run_id, alert)
);
create index alerts_of_job on alerts (job_id);

create table parked (
    parked_id text primary key,
    service text not null,
    topic text not null,
    partition integer,
    "offset" bigint,
    reason text not null,
    detail text not null,
    parked_at timestamptz not null,
    key bytea,
    value bytea,
    header_names text[] not null,
    header_values bytea[] not null,
    -- Its size, where it was too large to be kept.
    omitted_bytes bigint
);
create index parked_listed on parked (parked_at desc, parked_id);

-- A job as it is shown: a request that was only refused is "rejected", not "submitted" for ever.
create view shown_jobs as
select
    jobs.*,
    case when jobs.state = 'submitted' and refusal.reason is not null
        then 'rejected' else jobs.state end as shown_state,
    refusal.reason as refused_reason,
    refusal.detail as refused_detail,
    refusal.errors as refused_errors,
    progress.phase,
    -- A run that has not reported yet has no step; its job's older one says nothing about it.
    case when progress.attempt >= coalesce(jobs.attempt, 0) then progress.step end as step,
    coalesce((jobs.spec ->> 'max_steps')::bigint, progress.max_steps) as max_steps,
    progress.epoch,
    progress.first_step,
    progress.first_step_at,
    progress.step_at,
    progress.heard_at,
    progress.num_dropped_samples,
    progress.num_dropped_log_bytes,
    (select coalesce(sum(charges.amount_micro_usd), 0)::bigint from charges
        where charges.job_id = jobs.job_id) as charged_micro_usd
from jobs
left join job_progress as progress using (job_id)
left join lateral (
    select rejections.* from rejections
    where jobs.state = 'submitted' and rejections.subject_id = jobs.job_id
        and rejections.reason not in ('no_such_job', 'already_finished')
    order by rejections.seq desc, rejections.command_event_id limit 1
) as refusal on true;

-- Not rebuilt, and not needed to be: links to sign in that wait to be used, and who asked for
-- which replay. A rebuild forgets them.
create table login_codes (
    code_sha256 text primary key,
    expires_at timestamptz not null
);

create table replays (
    parked_id text primary key,
    replayed_at timestamptz not null
);
