-- The list of jobs by study, tag and best value. `group_id` is the study whose trial a job is: in the
-- same table as its time, so that one index has both.
alter table jobs add column group_id text;
alter table requests add column tags jsonb not null default '[]';
update jobs set group_id = requests.study_id from requests
    where subject_id = job_id and requests.study_id is not null;
update requests set tags = spec::jsonb -> 'tags'
    where pool is not null and jsonb_typeof(spec::jsonb -> 'tags') = 'array';
create index jobs_of_no_study on jobs (tenant_id, listed_at desc, job_id desc)
    where group_id is null;
create index jobs_of_study on jobs (group_id, listed_at desc, job_id desc)
    where group_id is not null;
create index jobs_by_best on jobs (
    tenant_id, (result #>> '{best,name}'), ((result #>> '{best,value}')::double precision), job_id
) where result #> '{best,value}' is not null;

-- The view lists its columns, so it is made again.
drop view shown_jobs;
create view shown_jobs as
select
    jobs.*,
    jobs.cancel_requested and jobs.finished_at is null as is_cancelling,
    requests.request_id, requests.name, requests.pool, requests.devices, requests.priority,
    requests.study_id, requests.trial_number, requests.metric, requests.goal, requests.tags,
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
