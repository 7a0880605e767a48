-- Studies and their trials: the saved state of every search.

-- Specifications and points are text: jsonb would turn 1e300 into a whole number.
create table studies (
    study_id text primary key,
    tenant_id text not null,
    request_id text not null,
    spec text not null,
    num_trials integer not null,
    num_proposed integer not null default 0,
    num_completed integer not null default 0,
    num_failed integer not null default 0,
    best_number integer,
    best_value double precision,
    started_at timestamptz not null default now(),
    finished_at timestamptz,
    unique (tenant_id, request_id),
    check (num_completed + num_failed <= num_proposed),
    check (num_proposed <= num_trials)
);

create table trials (
    study_id text not null references studies,
    number integer not null,
    job_id text not null unique,
    -- The id of our own job.submit: an answer to anybody else's command changes no trial.
    command_event_id text not null,
    hyperparameters text not null,
    state text not null default 'running' check (state in ('running', 'completed', 'failed')),
    value double precision,
    detail text,
    primary key (study_id, number),
    check ((state = 'completed') = (value is not null))
);

-- How the jobs of trials ended. No foreign key: the end may be read before the study is.
create table job_ends (
    job_id text primary key,
    study_id text not null,
    number integer not null,
    result text,
    detail text not null
);
create index job_ends_study on job_ends (study_id);
