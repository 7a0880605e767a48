-- The saved state of searches that prune, pause and change, and the log of what each was told.

-- `status` is the search's state beside its trials, `stamp` the last event in it. `warm_start` are
-- pairs of an earlier study and how many of its trials count, as JSON.
alter table studies
    add column status text,
    add column stamp text not null default '',
    add column revision bigint not null default 0,
    add column num_stopped integer not null default 0,
    -- Whether a limit may be crossed by time alone.
    add column has_clock boolean not null default false,
    add column warm_start text not null default '[]';

-- `opened` is what a trial that has not ended was asked to do; the texts are JSON.
alter table trials
    add column objectives text not null default '[]',
    add column is_safe boolean not null default true,
    add column measured text not null default '[]',
    add column parent integer,
    add column opened text,
    add column request_id text;
alter table trials drop constraint trials_state_check;
alter table trials add constraint trials_state_check
    check (state in ('running', 'paused', 'stopped', 'completed', 'failed'));
create unique index trials_request on trials (study_id, request_id) where request_id is not null;

-- Append-only: replayed through the same code, they give the same trials.
create table search_events (
    study_id text not null,
    revision bigint not null,
    event text not null,
    at timestamptz not null default now(),
    primary key (study_id, revision)
);
create index search_events_at on search_events (at);

-- Devices that trials hold now, and what each study has used and paid so far.
create table trial_allocations (
    allocation_id text primary key,
    study_id text not null,
    number integer not null,
    num_slots integer not null,
    granted_at timestamptz not null
);
create index trial_allocations_study on trial_allocations (study_id);

create table spending (
    study_id text primary key,
    slot_seconds double precision not null default 0,
    charged_slot_seconds double precision not null default 0,
    micro_usd bigint not null default 0,
    price_micro_usd_per_slot_hour bigint not null default 0
);
create index studies_with_clocks on studies (study_id) where finished_at is null and has_clock;
