-- What a round reads: the jobs that changed since the last one, and nothing of their specs.

-- Each change of a job draws the next number. Whoever changes one of these columns holds the writer
-- lock until it commits, so numbers become visible in their order: all below a number that was read
-- have been read, or never will be.
create sequence job_changes;
alter table jobs add column change bigint not null default nextval('job_changes');
create index jobs_changed on jobs (change);
create function draw_job_change() returns trigger language plpgsql as $$
begin
    new.change := nextval('job_changes');
    return new;
end $$;
create trigger jobs_draw_change
    before update of state, num_runs, num_failures, num_self_interruptions, not_before_at,
        waiting_reason, cancel_requested_at, cancel_reason
    on jobs for each row execute function draw_job_change();

-- Decided on, so no longer read out of the spec.
alter table jobs add column retry_limit integer not null default 0;
alter table jobs add column backoff_seconds double precision not null default 0;
alter table jobs add column backoff_limit_seconds double precision not null default 0;
update jobs set
    retry_limit = (spec::json #>> '{retries,limit}')::integer,
    backoff_seconds = (spec::json #>> '{retries,backoff_seconds}')::double precision,
    backoff_limit_seconds = (spec::json #>> '{retries,backoff_limit_seconds}')::double precision
where finished_at is null and spec::json #>> '{retries,limit}' is not null;

-- A position in the queue is read on demand, of the queue as it is then.
alter table jobs drop column waiting_position;

-- Cancels that came before the request for their job: another partition carried it.
create table early_cancels (
    number bigint generated always as identity primary key,
    event_id text not null,
    job_id text not null,
    tenant_id text not null,
    reason text not null,
    correlation_id text,
    traceparent text,
    received_at timestamptz not null default clock_timestamp()
);
create index early_cancels_of_job on early_cancels (job_id);
