-- Studies that stop trials early, are paused and changed: their state by the newest event, the rungs
-- of their trials, and counters of these. What is new has a default for the release before.
alter table studies
    add column state_seq bigint not null default -1,
    add column changed_seq bigint not null default -1,
    add column state_reason text,
    add column ended_by text,
    add column max_parallel_trials bigint,
    add column limits jsonb,
    add column pareto jsonb;

alter table trials
    add column objectives jsonb,
    add column is_safe boolean not null default true,
    add column was_best boolean not null default false,
    add column parent bigint,
    add column why text,
    add column is_external boolean not null default false,
    add column proposed_at timestamptz,
    add column ended_at timestamptz,
    add column judged_seq bigint not null default -1,
    add column rung bigint,
    add column measured double precision,
    add column threshold double precision,
    -- A trial that breaks the safety limit has a value and no rank.
    add column ranked_value double precision
        generated always as (case when is_safe then value end) stored;
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

alter table trial_counts
    add column num_stopped bigint not null default 0,
    add column num_paused bigint not null default 0;

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

-- As `shown_studies`, which the release before reads.
create view shown_searches as
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
