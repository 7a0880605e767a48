-- What is kept of the reports of pods, bounded per run.

-- The step that heartbeats name, recorded once per `every_steps`; whether the resume was announced.
alter table jobs add column every_steps bigint;
alter table runs add column first_step bigint;
alter table runs add column step bigint;
alter table runs add column restored_at timestamptz;

-- The causes that were announced since the run last saved.
alter table failing_runs add column announced text[] not null default '{}';
update failing_runs set announced = array[reason];
