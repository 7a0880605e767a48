-- Checkpoints in the store, and what keeping them costs, by job and day (UTC).
create table stored_checkpoints (
    checkpoint_id text primary key,
    tenant_id text not null,
    job_id text not null,
    size_bytes bigint not null,
    stored_at timestamptz not null,
    deleted_at timestamptz
);
create index stored_checkpoints_job on stored_checkpoints (job_id);
create index stored_checkpoints_deleted on stored_checkpoints (deleted_at)
    where deleted_at is not null;

-- Append-only, as charges: a correction is a row that reverses another, and a new one.
create table storage_charges (
    charge_id text primary key,
    tenant_id text not null,
    job_id text not null,
    day date not null,
    byte_microseconds numeric not null,
    price_id text not null,
    micro_usd_per_gb_month bigint not null,
    amount_micro_usd bigint not null,
    correction integer not null,
    reverses_charge_id text references storage_charges
);
create unique index storage_charges_once on storage_charges (job_id, day, correction)
    where reverses_charge_id is null;
create unique index storage_charges_reversed_once on storage_charges (reverses_charge_id)
    where reverses_charge_id is not null;
create index storage_charges_day on storage_charges (day);
create trigger storage_charges_append_only before update or delete on storage_charges
    for each row execute function refuse_change();

-- Running totals, of each job, and of each tenant where job_id is ''.
create table storage_spend (
    tenant_id text not null,
    job_id text not null,
    charged_micro_usd numeric not null,
    primary key (tenant_id, job_id)
);

create index storage_spend_job on storage_spend (job_id);
create index stored_checkpoints_time on stored_checkpoints (stored_at);

-- Days whose charging has begun. What is learned of them later corrects their charges.
create table storage_days (
    day date primary key,
    is_charged boolean not null default false
);
