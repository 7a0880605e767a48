-- Reading the bytes of checkpoints with progress that is kept, runs that fail to save, and pruning.

-- Null: the bytes were not read yet, only the sizes were compared. All rows until now were read.
alter table checkpoints add column read_at timestamptz default clock_timestamp();
alter table checkpoints alter column read_at drop default;
-- When the state last changed.
alter table checkpoints add column changed_at timestamptz not null default clock_timestamp();

-- A job's good or rejected ones are found without its deleted ones.
create index checkpoints_by_state on checkpoints (job_id, state);
drop index checkpoints_of_job;
create index checkpoints_by_read on checkpoints (read_at) where state = 'good';
create index checkpoints_deleted on checkpoints (changed_at) where state = 'deleted';

-- Shards whose bytes were read and match, of checkpoints that are being read.
create table read_shards (
    manifest_key text not null,
    shard_key text not null,
    primary key (manifest_key, shard_key)
);

alter table jobs add column every_seconds double precision;
alter table runs add column noted_at timestamptz not null default clock_timestamp();
alter table runs add column saved_at timestamptz;
alter table runs add column ended_at timestamptz;
update runs set ended_at = clock_timestamp() where not is_live;
create index runs_ended on runs (ended_at);

-- Live runs that train on without new checkpoints.
create table failing_runs (
    run_id text primary key,
    job_id text not null,
    reason text not null,
    failed_step bigint,
    since timestamptz not null default clock_timestamp()
);

alter table intents drop constraint intents_kind_check;
alter table intents add constraint intents_kind_check
    check (kind in ('list', 'verify', 'read', 'restore', 'delete', 'tidy'));
drop index intents_due;
create index intents_due on intents (due_at) where kind <> 'read';
create index intents_reads on intents (due_at) where kind = 'read';
