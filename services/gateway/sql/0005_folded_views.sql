-- The read model as folded views: one table per noun, written by the fold alone, and counters in
-- the place of counts. Nothing is converted: the topics are read again from offset 0.
drop view shown_jobs;
drop view shown_studies;
drop table jobs, job_progress, runs, allocations, allocation_slots, nodes, checkpoints, charges,
    studies, trials, rejections, alerts, timeline;
delete from inbox;
delete from sequence;
delete from rewound;
update stream set last_cursor = 0,
    generation = substr(replace(gen_random_uuid()::text, '-', ''), 1, 12);

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
    payload jsonb not null
);
create index timeline_of_job on timeline (job_id, occurred_at, seq, event_id)
    where job_id is not null;
create index timeline_of_study on timeline (study_id, occurred_at, seq, event_id)
    where study_id is not null;

-- What was asked for: the request that was accepted, or the first one. `spec` is canonical text,
-- because jsonb changes numbers (1e23 comes out as a whole one) and requests are compared by it.
create table requests (
    subject_id text primary key,
    request_id text not null,
    name text not null,
    spec text not null,
    is_accepted boolean not null,
    asked_at timestamptz not null,
    event_id text not null,
    pool text,
    devices bigint,
    priority bigint,
    max_steps bigint,
    study_id text,
    trial_number bigint,
    sampler text,
    metric text,
    goal text
);

create table jobs (
    job_id text primary key,
    tenant_id text not null,
    state text not null,
    state_seq bigint not null,
    submitted_at timestamptz,
    queued_at timestamptz,
    listed_at timestamptz not null
        generated always as (coalesce(queued_at, submitted_at, timestamptz 'epoch')) stored,
    started_at timestamptz,
    run_id text,
    attempt bigint,
    cancel_requested boolean not null,
    waiting_reason text,
    waiting_detail text,
    queue_position bigint,
    holders jsonb,
    not_before_at timestamptz,
    finished_at timestamptz,
    detail text,
    result jsonb,
    refused_seq bigint not null,
    refused_reason text,
    refused_detail text,
    refused_errors jsonb
);
create index jobs_listed on jobs (tenant_id, listed_at desc, job_id desc);
create index jobs_of_state on jobs (tenant_id, state, listed_at desc, job_id desc);
create index jobs_live on jobs (job_id) where finished_at is null;

create table job_progress (
    job_id text primary key,
    run_id text not null,
    attempt bigint not null,
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
    attempt bigint not null,
    fence bigint not null,
    state text not null,
    state_seq bigint not null,
    num_pods bigint,
    starting_at timestamptz,
    started_at timestamptz,
    ended_at timestamptz,
    exit_code bigint,
    signal bigint,
    rank bigint,
    detail text
);
create index runs_of_job on runs (job_id, attempt);

create table allocations (
    allocation_id text primary key,
    job_id text not null,
    run_id text not null,
    attempt bigint not null,
    slots jsonb not null,
    granted_at timestamptz not null,
    released_at timestamptz
);
create index allocations_held on allocations (allocation_id) where released_at is null;

create table nodes (
    node_id text primary key,
    pool text,
    device_type text,
    num_slots bigint not null,
    registered_seq bigint not null,
    removed_seq bigint not null,
    is_removed boolean not null generated always as (removed_seq > registered_seq) stored
);
create index nodes_present on nodes (pool, node_id) where not is_removed;

create table checkpoints (
    checkpoint_id text primary key,
    tenant_id text not null,
    job_id text not null,
    run_id text not null,
    attempt bigint not null,
    fence bigint not null,
    step bigint not null,
    manifest_key text,
    committed_seq bigint not null,
    committed_at timestamptz,
    epoch bigint,
    size_bytes bigint,
    num_shards bigint,
    metrics jsonb,
    best_seq bigint,
    rejected_seq bigint not null,
    rejected_reason text,
    rejected_detail text,
    deleted_seq bigint not null,
    deleted_at timestamptz,
    deleted_reason text,
    is_pinned boolean not null,
    restored_by_attempt bigint,
    is_usable boolean not null generated always as
        (committed_seq >= 0 and rejected_seq < 0 and deleted_seq < 0) stored
);
create index checkpoints_of_job on checkpoints (job_id, fence desc, step desc, checkpoint_id);
create index checkpoints_usable on checkpoints (job_id, fence desc, step desc) where is_usable;
create index checkpoints_best on checkpoints (job_id, best_seq) where best_seq is not null;

create table charges (
    charge_id text primary key,
    tenant_id text not null,
    job_id text not null,
    ends_at timestamptz not null,
    amount_micro_usd bigint not null
);

create table studies (
    study_id text primary key,
    tenant_id text not null,
    state text not null,
    submitted_at timestamptz,
    started_at timestamptz,
    listed_at timestamptz not null
        generated always as (coalesce(started_at, submitted_at, timestamptz 'epoch')) stored,
    finished_at timestamptz,
    num_trials bigint,
    best_number bigint,
    best_value double precision,
    refused_seq bigint not null,
    refused_reason text,
    refused_detail text,
    refused_errors jsonb
);
create index studies_listed on studies (tenant_id, listed_at desc, study_id desc);

create table trials (
    study_id text not null,
    number bigint not null,
    job_id text not null,
    hyperparameters jsonb not null,
    state text not null,
    state_seq bigint not null,
    value double precision,
    detail text,
    primary key (study_id, number)
);

-- Refused commands, found by the id of the command. An event id is unique within its source only.
create table rejections (
    command_event_id text not null,
    subject_id text not null,
    seq bigint not null,
    reason text not null,
    detail text not null,
    errors jsonb not null,
    primary key (command_event_id, subject_id)
);

create table alerts (
    run_id text not null,
    alert text not null,
    job_id text not null,
    attempt bigint not null,
    raised_seq bigint not null,
    cleared_seq bigint not null,
    series text,
    step bigint,
    detail text,
    raised_at timestamptz,
    primary key (run_id, alert)
);
create index alerts_active on alerts (job_id) where raised_seq > cleared_seq;

-- Counters, kept by the fold from what changed in the views above.
create table job_spend (
    job_id text primary key,
    tenant_id text not null,
    charged_micro_usd bigint not null,
    charged_until timestamptz not null
);
create index job_spend_latest on job_spend (tenant_id, charged_until desc, job_id);

create table trial_counts (
    study_id text primary key,
    num_proposed bigint not null,
    num_completed bigint not null,
    num_failed bigint not null,
    lowest_value double precision,
    lowest_number bigint,
    highest_value double precision,
    highest_number bigint
);

create table tenant_counts (
    tenant_id text primary key,
    jobs_by_state jsonb not null,
    num_charged_jobs bigint not null,
    charged_micro_usd bigint not null
);

-- A job as it is shown; without its spec, which only the page of one job reads.
create view shown_jobs as
select
    jobs.*,
    jobs.cancel_requested and jobs.finished_at is null as is_cancelling,
    requests.request_id, requests.name, requests.pool, requests.devices, requests.priority,
    requests.study_id, requests.trial_number, requests.metric, requests.goal,
    progress.phase,
    -- A run that has not reported yet has no step; its job's older one says nothing about it.
    case when progress.attempt >= coalesce(jobs.attempt, 0) then progress.step end as step,
    coalesce(requests.max_steps, progress.max_steps) as max_steps,
    progress.epoch, progress.first_step, progress.first_step_at, progress.step_at,
    progress.heard_at, progress.num_dropped_samples, progress.num_dropped_log_bytes,
    coalesce(job_spend.charged_micro_usd, 0) as charged_micro_usd
from jobs
left join requests on requests.subject_id = jobs.job_id
left join job_progress as progress using (job_id)
left join job_spend using (job_id);

-- A study as it is shown: the best of its trials so far (ties go to the lower number).
create view shown_studies as
select
    studies.*,
    requests.request_id, requests.name, requests.sampler, requests.metric, requests.goal,
    coalesce(counts.num_proposed, 0) as num_proposed,
    coalesce(counts.num_completed, 0) as num_completed,
    coalesce(counts.num_failed, 0) as num_failed,
    coalesce(studies.best_number, case when requests.goal = 'maximize'
        then counts.highest_number else counts.lowest_number end) as shown_best_number,
    coalesce(studies.best_value, case when requests.goal = 'maximize'
        then counts.highest_value else counts.lowest_value end) as shown_best_value
from studies
left join requests on requests.subject_id = studies.study_id
left join trial_counts as counts on counts.study_id = studies.study_id;
