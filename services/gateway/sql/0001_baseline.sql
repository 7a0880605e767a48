-- The read model: one table per noun, written by the fold alone, and counters in the place of
-- counts. All of it can be rebuilt from the topics, but for `login_codes` and `code`. No foreign keys: across
-- topics nothing comes in order. Columns that end in `seq` are the sequence number of the event that
-- the columns of the same name come from: an older one that comes late changes nothing.

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
    payload jsonb not null
);
create index timeline_of_job on timeline (job_id, occurred_at, seq, event_id)
    where job_id is not null;
create index timeline_of_study on timeline (study_id, occurred_at, seq, event_id)
    where study_id is not null;
-- What the page of a job shows first: its events without the many of checkpoints that come and go.
create index timeline_of_job_notable on timeline (job_id, occurred_at, seq, event_id)
    where job_id is not null and type not in ('checkpoint.committed', 'checkpoint.deleted');

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
    goal text,
    tags jsonb not null default '[]',
    -- The hash of the uploaded archive that it names.
    code_sha256 text
);
create index requests_of_code on requests (code_sha256) where code_sha256 is not null;
-- Jobs and studies by name, the newest first.
create index requests_of_jobs_named on requests (name, asked_at desc, subject_id)
    where pool is not null;
create index requests_of_studies_named on requests (name, asked_at desc, subject_id)
    where sampler is not null;

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
    refused_errors jsonb,
    -- The study whose trial it is: in the same table as its time, so that one index has both.
    group_id text,
    -- What was requested of it and has not happened yet: stop or pause.
    requested text,
    requested_seq bigint not null default -1,
    spec_project text,
    -- Tags, note and project that people gave it after its submission.
    annotated_seq bigint not null default -1,
    annotated_tags jsonb,
    annotated_project text,
    note text,
    project text generated always as (
        case when annotated_seq >= 0 then annotated_project else spec_project end
    ) stored
);
create index jobs_listed on jobs (tenant_id, listed_at desc, job_id desc);
create index jobs_of_state on jobs (tenant_id, state, listed_at desc, job_id desc);
create index jobs_of_no_study on jobs (tenant_id, listed_at desc, job_id desc)
    where group_id is null;
create index jobs_of_study on jobs (group_id, listed_at desc, job_id desc)
    where group_id is not null;
create index jobs_of_project on jobs (tenant_id, project, listed_at desc, job_id desc)
    where project is not null;
create index jobs_by_best on jobs (
    tenant_id, (result #>> '{best,name}'), ((result #>> '{best,value}')::double precision), job_id
) where result #> '{best,value}' is not null;
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
    detail text,
    -- Why nothing is known of it: its nodes do not answer.
    unreachable_seq bigint not null default -1,
    unreachable text,
    -- Since when nothing was heard of its pods; shown while it is suspect.
    silent_since timestamptz
);
create index runs_of_job on runs (job_id, attempt);

-- Misuses that the pods of a run have warned of.
create table warnings (
    run_id text not null,
    number bigint not null,
    job_id text not null,
    attempt bigint not null,
    warning text not null,
    detail text not null,
    primary key (run_id, number)
);
create index warnings_of_job on warnings (job_id, attempt desc);

-- What runs have said of their surroundings: packages, seed, devices, data.
create table descriptions (
    run_id text primary key,
    job_id text not null,
    attempt bigint not null,
    described_seq bigint not null,
    surroundings jsonb
);
create index descriptions_of_job on descriptions (job_id, attempt desc);

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
    is_removed boolean not null generated always as (removed_seq > registered_seq) stored,
    -- What a cluster says of it.
    is_spot boolean,
    topology text,
    unschedulable_reason text
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
    -- seq of its commit where it was the best so far; the highest of a job is the best.
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
create index checkpoints_not_deleted on checkpoints (job_id, fence desc, step desc, checkpoint_id)
    where deleted_seq < 0;

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
    refused_errors jsonb,
    -- Why it ended before all its trials.
    failure text,
    cancel_requested boolean not null default false,
    state_seq bigint not null default -1,
    changed_seq bigint not null default -1,
    state_reason text,
    ended_by text,
    max_parallel_trials bigint,
    limits jsonb,
    pareto jsonb
);
create index studies_listed on studies (tenant_id, listed_at desc, study_id desc);
create index studies_of_state on studies (tenant_id, state, listed_at desc, study_id desc);

create table trials (
    study_id text not null,
    number bigint not null,
    job_id text not null,
    hyperparameters jsonb not null,
    state text not null,
    state_seq bigint not null,
    value double precision,
    detail text,
    objectives jsonb,
    is_safe boolean not null default true,
    -- The value of the study's safety metric, where it completed.
    safety double precision,
    was_best boolean not null default false,
    parent bigint,
    why text,
    is_external boolean not null default false,
    -- The request that asked for it, from outside.
    request_id text,
    proposed_at timestamptz,
    ended_at timestamptz,
    -- The rungs that it will be judged at, and the last verdict.
    rungs jsonb,
    judged_seq bigint not null default -1,
    rung bigint,
    measured double precision,
    threshold double precision,
    verdict text,
    -- A trial that breaks the safety limit has a value and no rank.
    ranked_value double precision
        generated always as (case when is_safe then value end) stored,
    primary key (study_id, number)
);
create index trials_by_lowest on trials (study_id, ranked_value, number)
    where ranked_value is not null;
create index trials_by_highest on trials (study_id, ranked_value desc, number)
    where ranked_value is not null;
create index trials_live on trials (study_id, number)
    where state in ('proposed', 'stopping', 'paused');
create index trials_ended_without_rank on trials (study_id, number)
    where ranked_value is null and state not in ('proposed', 'stopping', 'paused');
create index trials_that_were_best on trials (study_id, number) where was_best;
create index trials_of_parents on trials (study_id, number) where parent is not null;
create index trials_asked_for on trials (study_id, request_id) where request_id is not null;

create table trial_rungs (
    study_id text not null,
    number bigint not null,
    step bigint not null,
    judged_seq bigint not null,
    value double precision,
    verdict text not null,
    threshold double precision,
    rank bigint,
    num_ranked bigint,
    reason text not null,
    primary key (study_id, number, step)
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
    tenant_id text,
    attempt bigint not null,
    raised_seq bigint not null,
    cleared_seq bigint not null,
    series text,
    step bigint,
    detail text,
    raised_at timestamptz,
    cleared_at timestamptz,
    primary key (run_id, alert)
);
create index alerts_active on alerts (job_id) where raised_seq > cleared_seq;
create index alerts_listed on alerts (tenant_id, raised_at desc, run_id desc, alert desc)
    where raised_seq >= 0;
create index alerts_of_job_listed on alerts (job_id, raised_at desc, run_id desc, alert desc)
    where raised_seq >= 0;

create table silences (
    silence_id text primary key,
    tenant_id text not null,
    changed_seq bigint not null,
    alert text,
    job_id text,
    project text,
    ends_at timestamptz,
    reason text not null,
    created_at timestamptz,
    command_event_id text not null,
    ended_seq bigint not null
);
create index silences_in_force on silences (tenant_id, ends_at) where changed_seq > ended_seq;

-- What may be spent, and what the spend has reached.
create table budgets (
    tenant_id text not null,
    name text not null,
    changed_seq bigint not null,
    version bigint not null,
    is_removed boolean not null,
    limit_micro_usd bigint not null,
    period text not null,
    study_id text,
    job_id text,
    project text,
    warn_percents jsonb not null,
    at_limit text not null,
    reached_seq bigint not null,
    reached_percent bigint not null,
    spent_micro_usd bigint not null,
    reached_at timestamptz,
    primary key (tenant_id, name)
);

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
    highest_number bigint,
    num_stopped bigint not null default 0,
    num_paused bigint not null default 0
);

create table rung_counts (
    study_id text not null,
    step bigint not null,
    num_judged bigint not null,
    num_continued bigint not null,
    num_stopped bigint not null,
    num_paused bigint not null,
    threshold double precision,
    threshold_seq bigint not null,
    primary key (study_id, step)
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
    jobs.job_id, jobs.tenant_id, jobs.state, jobs.state_seq, jobs.submitted_at, jobs.queued_at,
    jobs.listed_at, jobs.started_at, jobs.run_id, jobs.attempt, jobs.cancel_requested,
    jobs.waiting_reason, jobs.waiting_detail, jobs.queue_position, jobs.holders,
    jobs.not_before_at, jobs.finished_at, jobs.detail, jobs.result, jobs.refused_seq,
    jobs.refused_reason, jobs.refused_detail, jobs.refused_errors, jobs.group_id,
    jobs.project, jobs.note,
    jobs.cancel_requested and jobs.finished_at is null as is_cancelling,
    case when jobs.finished_at is null then jobs.requested end as requested,
    requests.request_id, requests.name, requests.pool, requests.devices, requests.priority,
    requests.study_id, requests.trial_number, requests.metric, requests.goal,
    case when jobs.annotated_seq >= 0 then jobs.annotated_tags else requests.tags end as tags,
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
    studies.cancel_requested and studies.finished_at is null as is_cancelling,
    requests.request_id, requests.name, requests.sampler, requests.metric, requests.goal,
    coalesce(counts.num_proposed, 0) as num_proposed,
    coalesce(counts.num_completed, 0) as num_completed,
    coalesce(counts.num_failed, 0) as num_failed,
    coalesce(counts.num_stopped, 0) as num_stopped,
    coalesce(counts.num_paused, 0) as num_paused,
    coalesce(studies.best_number, case when requests.goal = 'maximize'
        then counts.highest_number else counts.lowest_number end) as shown_best_number,
    coalesce(studies.best_value, case when requests.goal = 'maximize'
        then counts.highest_value else counts.lowest_value end) as shown_best_value
from studies
left join requests on requests.subject_id = studies.study_id
left join trial_counts as counts on counts.study_id = studies.study_id;

-- Records that were parked, what became of each, and counters by group. A row whose parked_at is
-- null is a decision about a record that has not been read yet.
create table parked (
    parked_id text primary key,
    -- The tenant that the record names; of one that names none, that of the operators.
    tenant_id text not null default 'default',
    service text,
    topic text,
    partition integer,
    "offset" bigint,
    reason text,
    detail text,
    parked_at timestamptz,
    key bytea,
    value bytea,
    header_names text[],
    header_values bytea[],
    -- Its size, where it was too large to be kept.
    omitted_bytes bigint,
    -- "" where the record names no type that we know, so that senders cannot make groups.
    event_type text not null default '',
    state text not null default 'open',
    places text[] not null default '{}',
    decision_state text,
    decision_num_parkings integer,
    decided_at timestamptz,
    decision_note text not null default '',
    replayed_at timestamptz
);
create index parked_listed on parked (tenant_id, state, parked_at desc, parked_id desc)
    where parked_at is not null;
create index parked_in_group on parked
    (tenant_id, service, topic, reason, event_type, state, parked_at desc, parked_id desc)
    where parked_at is not null;

create table parked_groups (
    tenant_id text not null,
    service text not null,
    topic text not null,
    reason text not null,
    event_type text not null,
    num_open bigint not null default 0,
    num_replayed bigint not null default 0,
    num_discarded bigint not null default 0,
    primary key (tenant_id, service, topic, reason, event_type)
);

-- Of another expression than the lists are ordered by, or these would be read by it and filtered.
create index parked_by_age on parked ((parked_at at time zone 'UTC'));
create function count_forgotten() returns trigger language plpgsql as $$ begin
    update parked_groups as g set
        num_open = g.num_open - f.num_open,
        num_replayed = g.num_replayed - f.num_replayed,
        num_discarded = g.num_discarded - f.num_discarded
    from (select tenant_id, service, topic, reason, event_type,
            count(*) filter (where state = 'open') as num_open,
            count(*) filter (where state = 'replayed') as num_replayed,
            count(*) filter (where state = 'discarded') as num_discarded
        from forgotten group by tenant_id, service, topic, reason, event_type) as f
    where (g.tenant_id, g.service, g.topic, g.reason, g.event_type)
        = (f.tenant_id, f.service, f.topic, f.reason, f.event_type);
    return null;
end $$;
create trigger parked_forgotten after delete on parked referencing old table as forgotten
    for each statement execute function count_forgotten();

-- Uploaded archives, and until when each is kept: for ever once a request names it. Not rebuilt: what
-- the object store holds is found again at a start, and then kept for another day.
create table code (
    tenant_id text not null,
    sha256 text not null,
    size_bytes bigint not null,
    keep_until timestamptz not null,
    primary key (tenant_id, sha256)
);
create index code_by_end on code (keep_until);
create table code_totals (
    tenant_id text primary key,
    size_bytes bigint not null
);

-- Links to sign in that wait to be used. Not rebuilt, and not needed to be: a rebuild forgets them.
create table login_codes (
    code_sha256 text primary key,
    expires_at timestamptz not null
);
