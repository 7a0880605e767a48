-- `num` jobs, the last `open` of which run, hold a slot and have an alert. A tenth of them are
-- trials. The last job has `saved` checkpoints, and `events` of what else happens to a job.
create temp table numbers on commit drop as
select n, 'job_' || id as job, 'study_' || id as study, 'ckpt_' || id as checkpoint,
    timestamptz '2026-01-01' + n * interval '1 minute' as at,
    'job_' || translate(lpad('${num}', 26, '0'), '0189', 'abcd') as last
from generate_series(1, ${num}) as n,
    lateral (select translate(lpad(n::text, 26, '0'), '0189', 'abcd')) as of (id);
insert into jobs (job_id, tenant_id, state, state_seq, queued_at, attempt, run_id, cancel_requested,
    finished_at, refused_seq, group_id, result, spec_project)
select job, 'default', case when n > ${num} - ${open} then 'running'
        when n % 10 = 0 then 'failed' else 'succeeded' end, 9, at, 1, n::text, false,
    case when n <= ${num} - ${open} then at end, -1, case when n <= ${num} / 10 then study end,
    jsonb_build_object('best',
        jsonb_build_object('name', 'accuracy', 'goal', 'maximize', 'value', 0.5, 'step', 1)),
    'p' || n % 5
from numbers;
insert into requests (subject_id, request_id, name, spec, is_accepted, asked_at, event_id, pool,
    devices, priority, metric, goal)
select job, n, 'job', '{"command": ["true"], "hyperparameters": {"rate": 0.5}}', true,
    at, n, 'default', 1, 0, 'accuracy', 'maximize'
from numbers;
insert into job_progress
select job, n, 1, 1, 'training', 5, 10, null, 0, 0, 1, at, at, at from numbers;
insert into job_spend select job, 'default', 5, at from numbers;
insert into runs (run_id, job_id, attempt, fence, state, state_seq)
select n, job, 1, 1, 'succeeded', 5 from numbers;
insert into allocations
select n, job, n, 1,
    jsonb_build_array(jsonb_build_object('node_id', 'node-' || n % ${open} + 1, 'slot', 1)), at,
    case when n <= ${num} - ${open} then at end from numbers;
insert into checkpoints (checkpoint_id, tenant_id, job_id, run_id, attempt, fence, step,
    committed_seq, metrics, best_seq, rejected_seq, deleted_seq, is_pinned)
select checkpoint, 'default', case when n <= ${saved} then last else job end, n, 1, 1, n, n,
    '{"accuracy": 1}', n, -1, case when n <= ${saved} - ${open} then n else -1 end, false
from numbers;
insert into alerts (run_id, alert, job_id, attempt, raised_seq, cleared_seq, raised_at, tenant_id,
    detail)
select n, 'stalled', job, 1, 1, case when n <= ${num} - ${open} then 2 else 0 end, at,
    'default', 'slow' from numbers;
insert into silences
select n, 'default', 1, null, null, 'elsewhere', now() + interval '1 hour', '', at, '',
    case when n <= ${open} then 0 else 2 end from numbers;
insert into nodes
select 'node-' || n, 'default', 'cpu', 8, 1, case when n <= ${open} then -1 else 2 end from numbers;
insert into timeline (cursor, source, event_id, type, tenant_id, job_id, study_id, occurred_at, seq,
    payload)
select n * 2 + event, '/s', n || '-' || event, 'run.heard', 'default', job,
    case when n <= ${num} / 10 then study end, at, event, '{"attempt": 1}'
from numbers, generate_series(0, 1) as event;
update stream set last_cursor = ${num} * 3 + 2;
insert into tenant_counts values ('default', '{"succeeded": ${num}}', ${num}, 5);
insert into timeline (cursor, source, event_id, type, tenant_id, job_id, study_id, occurred_at, seq,
    payload)
select ${num} * 2 + 2 + n, '/s', 'last-' || n, 'run.heard', 'default', last, '${long_study}', at,
    n, '{"attempt": 1}' from numbers where n <= ${events};
insert into runs (run_id, job_id, attempt, fence, state, state_seq)
select 'last-' || n, last, n + 1, 1, 'failed', 5 from numbers where n <= ${events};
insert into alerts (run_id, alert, job_id, attempt, raised_seq, cleared_seq, raised_at, tenant_id,
    detail)
select 'last-' || n, 'stalled', last, n + 1, 2, 0, at, 'default', 'slow'
from numbers where n <= ${events};
insert into warnings
select 'last-' || n, 1, last, n + 1, 'misuse', 'detail ' || n from numbers where n <= ${events};
insert into rejections select n, job, 1, 'no_such_pool', '', '[]' from numbers;
insert into parked (parked_id, service, topic, partition, "offset", reason, detail, parked_at, key,
    value, state, places)
select n, 'scheduler', 'commands.jobs', 1, n, 'reason ' || ${group}, 'detail', at, 'key', 'value',
    case when n > ${num} - ${open} then 'open' else 'discarded' end, '{}' from numbers;
insert into parked_groups (tenant_id, service, topic, reason, event_type, num_open, num_discarded)
select tenant_id, service, topic, reason, event_type, count(*) filter (where state = 'open'),
    count(*) filter (where state <> 'open')
from parked group by 1, 2, 3, 4, 5;
insert into requests (subject_id, request_id, name, spec, is_accepted, asked_at, event_id, sampler,
    metric, goal)
select study, 's' || n, 'search', '{}', true, at, 's' || n, 'grid', 'accuracy', 'maximize'
from numbers where n <= ${num} / 10;
insert into studies (study_id, tenant_id, state, started_at, refused_seq)
select study, 'default', 'completed', at, -1 from numbers where n <= ${num} / 10;
insert into trial_counts
select study, 5, 5, 0, 0.1, 1, 0.9, 2 from numbers where n <= ${num} / 10;
insert into trials (study_id, number, job_id, hyperparameters, state, state_seq, value)
select study, number, job, '{}', 'completed', 1, 0.5
from numbers, generate_series(0, 4) as number where n <= ${num} / 10;

-- One study with `trials` trials, judged at two rungs.
insert into requests (subject_id, request_id, name, spec, is_accepted, asked_at, event_id, sampler,
    metric, goal)
values ('${long_study}', 'long', 'long', '{}', true, now(), 'long', 'tpe', 'loss', 'minimize');
insert into studies (study_id, tenant_id, state, started_at, refused_seq)
values ('${long_study}', 'default', 'running', now(), -1);
insert into trial_counts values ('${long_study}', ${trials}, ${trials} / 4, 0, 0.1, 1, 0.9, 2);
insert into trials (study_id, number, job_id, hyperparameters, state, state_seq, value, rung,
    measured, was_best, parent)
select '${long_study}', n, job, jsonb_build_object('rate', 1.0 / n, 'width', n % 7),
    case when n % 2 = 0 then 'completed' when n > ${trials} - ${open} then 'proposed'
        else 'stopped' end, 1,
    case when n % 2 = 0 then 1.0 / n end, 10, 0.5, n % 4 = 0, n / 2 from numbers where n <= ${trials};
insert into trial_rungs
select '${long_study}', n, step, 1, 0.5, 'continue', null, null, null, ''
from numbers, unnest(array[10, 30]) as step where n <= ${trials};
insert into rung_counts select '${long_study}', n, ${trials}, 1, 2, 3, 0.5, 1
from generate_series(1, ${rungs}) as n;
