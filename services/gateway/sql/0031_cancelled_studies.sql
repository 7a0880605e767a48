-- Studies that are being cancelled. The view lists its columns, so it is made again.
drop view shown_studies;
alter table studies add column cancel_requested boolean not null default false;
create view shown_studies as
select
    studies.*,
    studies.cancel_requested and studies.finished_at is null as is_cancelling,
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
