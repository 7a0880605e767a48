-- Studies and their trials: the saved state of every search, and the log of its inputs.

-- Specifications, points and all other JSON are text: jsonb would turn 1e300 into a whole number.
create table studies (
    study_id text primary key,
    tenant_id text not null,
    request_id text not null,
    spec text not null,
    num_trials integer not null,
    num_proposed integer not null default 0,
    num_completed integer not null default 0,
    num_failed integer not null default 0,
    started_at timestamptz not null default now(),
    finished_at timestamptz,
    -- Why its owner cancelled it; it ends once none of its trials runs.
    cancel_reason text,
    -- The search's state beside its trials, and the last event in it.
    status text not null,
    stamp text not null default '',
    revision bigint not null default 0,
    num_stopped integer not null default 0,
    -- Whether a limit may be crossed by time alone.
    has_clock boolean not null default false,
    -- Pairs of an earlier study and how many of its trials count.
    warm_start text not null default '[]',
    -- Whether the search ends and has more paused trials than one transaction ends.
    has_more boolean not null default false,
    -- What the gauges of searches show, so that nobody reads the trials or parses the status for it.
    state text not null default 'running',
    num_paused integer not null default 0,
    unique (tenant_id, request_id),
    check (num_completed + num_failed <= num_proposed),
    check (num_proposed <= num_trials)
);
create index studies_with_clocks on studies (study_id) where finished_at is null and has_clock;
create index studies_with_more on studies (study_id) where has_more;
create index studies_not_ended on studies (study_id) where finished_at is null;
create index studies_of_tenant on studies (tenant_id, started_at);

create table trials (
    study_id text not null references studies,
    number integer not null,
    job_id text not null unique,
    -- The id of our own job.submit: an answer to anybody else's command changes no trial.
    command_event_id text not null,
    hyperparameters text not null,
    state text not null default 'running'
        check (state in ('running', 'paused', 'stopped', 'completed', 'failed')),
    detail text,
    objectives text not null default '[]',
    is_safe boolean not null default true,
    measured text not null default '[]',
    parent integer,
    -- What a trial that has not ended was asked to do.
    opened text,
    request_id text,
    primary key (study_id, number),
    check ((state = 'completed') = (objectives <> '[]'))
);
create unique index trials_request on trials (study_id, request_id) where request_id is not null;

-- How the jobs of trials ended. No foreign key: the end may be read before the study is.
create table job_ends (
    job_id text primary key,
    study_id text not null,
    number integer not null,
    result text,
    detail text not null
);
create index job_ends_study on job_ends (study_id);

-- Append-only: replayed through the same code, they give the same trials.
create table search_events (
    study_id text not null,
    revision bigint not null,
    event text not null,
    at timestamptz not null default now(),
    primary key (study_id, revision)
);
create index search_events_at on search_events (at);

-- Devices that trials hold now.
create table trial_allocations (
    allocation_id text primary key,
    study_id text not null,
    num_slots integer not null,
    granted_at timestamptz not null,
    pool text not null,
    device_type text not null
);
create index trial_allocations_study on trial_allocations (study_id);

-- What each study has used and paid so far.
create table spending (
    study_id text primary key,
    slot_seconds double precision not null default 0,
    charged_slot_seconds double precision not null default 0,
    micro_usd bigint not null default 0,
    price_micro_usd_per_slot_hour bigint not null default 0
);

-- What devices were last charged at, so that slots of a study without a charge have a price.
create table device_prices (
    pool text not null,
    device_type text not null,
    price_micro_usd_per_slot_hour bigint not null,
    primary key (pool, device_type)
);
