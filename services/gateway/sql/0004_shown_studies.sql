-- A study as it is shown: refused requests as "rejected", as `shown_jobs` does; its trials counted,
-- and the best of them so far (ties go to the lower number, as the search has it).
create view shown_studies as
select
    studies.*,
    case when studies.state = 'submitted' and refusal.reason is not null
        then 'rejected' else studies.state end as shown_state,
    refusal.reason as refused_reason,
    refusal.detail as refused_detail,
    refusal.errors as refused_errors,
    counted.num_proposed,
    counted.num_completed,
    counted.num_failed,
    coalesce(studies.best_number, leader.number) as shown_best_number,
    case when studies.best_number is null
        then leader.value else studies.best_value end as shown_best_value
from studies
left join lateral (
    select count(*) as num_proposed,
        count(*) filter (where trials.state = 'completed') as num_completed,
        count(*) filter (where trials.state = 'failed') as num_failed
    from trials where trials.study_id = studies.study_id
) as counted on true
left join lateral (
    select trials.number, trials.value from trials
    where trials.study_id = studies.study_id and trials.value is not null
    order by case when studies.spec #>> '{job,metric,goal}' = 'maximize'
        then -trials.value else trials.value end, trials.number
    limit 1
) as leader on true
left join lateral (
    select rejections.* from rejections
    where studies.state = 'submitted' and rejections.subject_id = studies.study_id
    order by rejections.seq desc, rejections.command_event_id limit 1
) as refusal on true;
