-- What is told to lineage endpoints; rows are made only where one is configured.
create table lineage_jobs (
    job_id text primary key,
    facts text not null,
    finished_at timestamptz
);
create index lineage_jobs_by_age on lineage_jobs (finished_at) where finished_at is not null;

-- `is_told`: its START is written. `told_at`: when a RUNNING was last.
create table lineage_runs (
    run_id text primary key,
    began_at timestamptz not null,
    is_told boolean not null default false,
    told_at timestamptz not null default clock_timestamp(),
    ended_at timestamptz
);
create index lineage_runs_by_age on lineage_runs (ended_at) where ended_at is not null;

-- Checkpoints that a run went on from (`is_input`), and those it saved.
create table lineage_checkpoints (
    run_id text not null,
    checkpoint_id text not null,
    is_input boolean not null,
    step bigint not null,
    size_bytes bigint,
    num_shards integer,
    created_at timestamptz not null default clock_timestamp(),
    primary key (run_id, is_input, checkpoint_id)
);
create index lineage_checkpoints_by_age on lineage_checkpoints (created_at);

create index deliveries_in_order on deliveries (webhook, id);
