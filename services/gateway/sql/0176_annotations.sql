-- Tags, note and project that people gave a job after its submission.
alter table jobs add column annotated_seq bigint not null default -1;
alter table jobs add column annotated_tags jsonb;
alter table jobs add column annotated_project text;
alter table jobs add column note text;
alter table jobs add column project text generated always as (
    case when annotated_seq >= 0 then annotated_project else spec_project end
) stored;
drop index jobs_of_project;
create index jobs_of_project on jobs (tenant_id, project, listed_at desc, job_id desc)
    where project is not null;

-- With what it had before, and the new columns at its end.
create or replace view shown_jobs as
select
    jobs.job_id, jobs.tenant_id, jobs.state, jobs.state_seq, jobs.submitted_at, jobs.queued_at,
    jobs.listed_at, jobs.started_at, jobs.run_id, jobs.attempt, jobs.cancel_requested,
    jobs.waiting_reason, jobs.waiting_detail, jobs.queue_position, jobs.holders,
    jobs.not_before_at, jobs.finished_at, jobs.detail, jobs.result, jobs.refused_seq,
    jobs.refused_reason, jobs.refused_detail, jobs.refused_errors, jobs.group_id,
    jobs.cancel_requested and jobs.finished_at is null as is_cancelling,
    requests.request_id, requests.name, requests.pool, requests.devices, requests.priority,
    requests.study_id, requests.trial_number, requests.metric, requests.goal,
    case when jobs.annotated_seq >= 0 then jobs.annotated_tags else requests.tags end as tags,
    progress.phase,
    -- A run that has not reported yet has no step; its job's older one says nothing about it.
    case when progress.attempt >= coalesce(jobs.attempt, 0) then progress.step end as step,
    coalesce(requests.max_steps, progress.max_steps) as max_steps,
    progress.epoch, progress.first_step, progress.first_step_at, progress.step_at,
    progress.heard_at, progress.num_dropped_samples, progress.num_dropped_log_bytes,
    coalesce(job_spend.charged_micro_usd, 0) as charged_micro_usd,
    case when jobs.finished_at is null then jobs.requested end as requested,
    jobs.project,
    jobs.note
from jobs
left join requests on requests.subject_id = jobs.job_id
left join job_progress as progress using (job_id)
left join job_spend using (job_id);
