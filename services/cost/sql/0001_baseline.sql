-- What slots and stored checkpoints cost, what was charged for them, and what budgets allow.

-- What is known of jobs: whom their charges count for, and what estimates are made from.
create table jobs (
    job_id text primary key,
    study_id text,
    project text,
    name text,
    -- The tenant; null until the job itself was read.
    of_tenant text,
    -- A digest of the command.
    command text,
    succeeded_at timestamptz
);
create index jobs_by_name on jobs (of_tenant, name, succeeded_at desc)
    where succeeded_at is not null;
create index jobs_by_command on jobs (of_tenant, command, succeeded_at desc)
    where succeeded_at is not null;
create index jobs_by_project on jobs (of_tenant, project, succeeded_at desc)
    where succeeded_at is not null;
create index jobs_succeeded on jobs (of_tenant, succeeded_at) where succeeded_at is not null;

-- Allocations that are known, those that are held among them.
create table allocations (
    allocation_id text primary key,
    tenant_id text not null,
    job_id text not null,
    run_id text not null,
    pool text not null,
    device_type text not null,
    num_slots integer not null,
    -- Which slots of which node, such as {"node-a": [0, 3]}: a node that loses slots offers those with
    -- the lowest numbers.
    slot_numbers jsonb not null,
    -- How many of them are on spot nodes, which may have prices of their own: in all, and by node.
    num_spot_slots integer not null,
    spot_slots jsonb not null,
    granted_at timestamptz not null,
    released_at timestamptz,
    -- When the release was read: after an outage, long after it happened.
    release_noted_at timestamptz,
    paid_ends_at timestamptz,
    -- Until when it accrues while its release has not been read (services/cost/store_accrual.py):
    -- when its job ended, or was granted slots again.
    over_at timestamptz,
    -- Released ones are added to the shares of days and hours some minutes later, once.
    is_shared boolean not null default false
);
create index allocations_open on allocations (job_id) where released_at is null;
create index allocations_open_of_tenant on allocations (tenant_id) where released_at is null;
create index allocations_run on allocations (run_id);
-- Deleted by age (services/cost/retention.py).
create index allocations_released on allocations (released_at) where released_at is not null;
create index allocations_to_share on allocations (released_at)
    where released_at is not null and not is_shared;
create index allocations_not_shared on allocations (allocation_id) where not is_shared;

-- What is known of a run, until its allocation is shared out.
create table run_facts (
    run_id text primary key,
    started_at timestamptz,
    -- Its slots are not paid for after that, whenever they are released.
    ended_at timestamptz,
    -- Did it end so that what it had not saved must be done again?
    has_lost boolean not null default false,
    last_checkpoint_at timestamptz,
    blocked_seconds double precision not null default 0,
    -- Since when no node of the run answers.
    unreachable_at timestamptz,
    -- From when on nothing accrues, because what runs the pods does not make or place them.
    waits_from timestamptz,
    noted_at timestamptz not null default now()
);
create index run_facts_noted on run_facts (noted_at);

-- Append-only: a correction is a row that reverses another, and a new one.
create table charges (
    charge_id text primary key,
    tenant_id text not null,
    job_id text not null,
    run_id text not null,
    attempt integer not null,
    allocation_id text not null,
    pool text not null,
    device_type text not null,
    num_slots integer not null,
    starts_at timestamptz not null,
    ends_at timestamptz not null,
    price_id text not null,
    price_micro_usd_per_slot_hour bigint not null,
    amount_micro_usd bigint not null,
    reverses_charge_id text references charges,
    -- The platform's own cost stands beside the charge: the same slots from ends_at until then.
    platform_ends_at timestamptz,
    platform_micro_usd bigint not null default 0,
    -- How often the allocation's charges were replaced before this one was made.
    correction integer not null default 0,
    -- Slots on spot nodes have charges of their own, which may be at the same price.
    is_spot boolean not null default false,
    constraint charges_has_time
        check (ends_at >= starts_at and (ends_at > starts_at or platform_ends_at is not null)),
    constraint charges_platform_time check (platform_ends_at > ends_at)
);
create unique index charges_once on charges (allocation_id, price_id, is_spot, correction)
    where reverses_charge_id is null;
create unique index charges_reversed_once on charges (reverses_charge_id)
    where reverses_charge_id is not null;
create index charges_allocation on charges (allocation_id);
create index charges_job on charges (job_id);
create index charges_of_tenant on charges (tenant_id, ends_at);
create index charges_unpriced on charges (charge_id)
    where price_id = 'unpriced' and reverses_charge_id is null;

-- Running totals, kept by the statement that inserts a charge.
create table spend_by_day (
    tenant_id text not null,
    day date not null,
    charged_micro_usd numeric not null,
    platform_micro_usd numeric not null,
    primary key (tenant_id, day)
);

-- What no price covers, by kind; a reversal counts down.
create table unpriced_use (
    tenant_id text not null,
    pool text not null,
    device_type text not null,
    num_charges bigint not null,
    primary key (tenant_id, pool, device_type)
);

-- Spend by subject and day: of the whole tenant (''), a study (its id), a job (its id) or a project
-- ('project/' and its name). The row of day -infinity is the total of all days. Kept by the trigger
-- below.
create table spend (
    tenant_id text not null,
    subject text not null,
    day date not null,
    charged_micro_usd numeric not null,
    -- When the first charged time of the day began: how old the spending is.
    first_at timestamptz not null,
    primary key (tenant_id, subject, day)
);

create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'charges are append-only: write a reversing row';
end $$;
create trigger charges_append_only before update or delete on charges
    for each row execute function refuse_change();

-- What slots cost for this long, rounded once, half to even.
create function cost_of(slot_microseconds numeric, micro_usd_per_slot_hour numeric)
returns numeric language sql immutable as $$
    select quotient - case
        when rest * 2 < 3600000000 or (rest * 2 = 3600000000 and (quotient - 1) % 2 = 0)
        then 1 else 0 end
    from (select div(product, 3600000000) + 1 as quotient, product % 3600000000 as rest
          from (select slot_microseconds * micro_usd_per_slot_hour as product) as given) as divided
$$;

create function slot_time(num_slots integer, first timestamptz, last timestamptz)
returns numeric language sql immutable as $$
    select num_slots * extract(epoch from greatest(last - first, interval '0')) * 1000000
$$;

-- A charge is cut at the midnights of UTC, as tests/handlers/cost/days.py does. Its job is locked: a
-- study or project that is learned meanwhile gets it, once.
create function add_to_spend() returns trigger language plpgsql as $$
begin
    insert into jobs (job_id) select distinct job_id from new_charges order by 1
        on conflict do nothing;
    perform from jobs where job_id in (select job_id from new_charges) order by job_id for share;
    insert into spend
        with part as (
            select tenant_id, job_id, midnight::date as day,
                greatest(starts_at, midnight at time zone 'UTC') as first_at,
                (case when reverses_charge_id is null then 1 else -1 end)
                * (cost_of(slot_time(num_slots, starts_at,
                        least(ends_at, (midnight + interval '1 day') at time zone 'UTC')),
                        price_micro_usd_per_slot_hour)
                    - cost_of(slot_time(num_slots, starts_at, midnight at time zone 'UTC'),
                        price_micro_usd_per_slot_hour)) as amount
            from new_charges, generate_series(
                date_trunc('day', starts_at at time zone 'UTC'),
                (ends_at at time zone 'UTC') - interval '1 microsecond', interval '1 day')
                as midnight
        )
        select tenant_id, subject, of_day, sum(amount), min(first_at)
        from part join jobs using (job_id),
            lateral (values (''), (job_id), (study_id), ('project/' || project)) as of (subject),
            lateral (values (day), ('-infinity'::date)) as at (of_day)
        where subject is not null
        group by tenant_id, subject, of_day order by tenant_id, subject, of_day
    on conflict (tenant_id, subject, day) do update set
        charged_micro_usd = spend.charged_micro_usd + excluded.charged_micro_usd,
        first_at = least(spend.first_at, excluded.first_at);
    return null;
end $$;
create trigger charges_add_to_spend after insert on charges
    referencing new table as new_charges for each statement execute function add_to_spend();

-- Versions only grow, also those of a name that is used again.
create sequence budget_versions;

create table budgets (
    tenant_id text not null,
    name text not null,
    version bigint not null,
    -- As in the contract, as text.
    spec text not null,
    -- The highest level that was told in the period that began at period_starts_at.
    reached_percent integer not null default 0,
    period_starts_at timestamptz,
    primary key (tenant_id, name)
);

-- Jobs that were told to stop because of a budget: once per crossing.
create table budget_stops (
    tenant_id text not null,
    name text not null,
    job_id text not null,
    primary key (tenant_id, name, job_id),
    foreign key (tenant_id, name) references budgets on delete cascade
);

-- What nodes offered.
create table node_offers (
    node_id text not null,
    pool text not null,
    device_type text not null,
    num_slots integer not null,
    is_spot boolean not null default false,
    starts_at timestamptz not null,
    ends_at timestamptz,
    primary key (node_id, starts_at)
);
create unique index node_offers_open on node_offers (node_id) where ends_at is null;
create index node_offers_ended on node_offers (ends_at);

-- What was done with the time of slots, by day, and by hour for some weeks. Of pools, and of jobs,
-- where job_id is '' for what no tenant pays. `spot` are the parts that were of spot slots.
create table pool_shares (
    day date not null,
    pool text not null,
    device_type text not null,
    tenant_id text not null,
    kind text not null,
    slot_microseconds numeric not null,
    micro_usd numeric not null,
    primary key (day, pool, device_type, tenant_id, kind)
);
create table pool_spot_shares (like pool_shares including indexes);
create table pool_hours (
    hour timestamptz not null,
    pool text not null,
    device_type text not null,
    tenant_id text not null,
    kind text not null,
    slot_microseconds numeric not null,
    micro_usd numeric not null,
    primary key (hour, pool, device_type, tenant_id, kind)
);
create table job_shares (
    day date not null,
    pool text not null,
    device_type text not null,
    tenant_id text not null,
    job_id text not null,
    kind text not null,
    slot_microseconds numeric not null,
    micro_usd numeric not null,
    primary key (day, pool, device_type, tenant_id, job_id, kind)
);
create table job_spot_shares (like job_shares including indexes);
create table job_hours (
    hour timestamptz not null,
    pool text not null,
    device_type text not null,
    tenant_id text not null,
    job_id text not null,
    kind text not null,
    slot_microseconds numeric not null,
    micro_usd numeric not null,
    primary key (hour, pool, device_type, tenant_id, job_id, kind)
);

-- Time in which devices of a run were used too little, or not at all, as alerts told: each alert by
-- itself. No end: until the run ended.
create table low_use (
    run_id text not null,
    alert text not null,
    starts_at timestamptz not null,
    ends_at timestamptz,
    tenant_id text not null,
    job_id text not null,
    -- Of the devices' time: how much was used when the alert was raised, and how much is expected.
    used_percent double precision not null,
    expected_percent double precision not null,
    primary key (run_id, alert, starts_at)
);
create index low_use_of_tenant on low_use (tenant_id, starts_at);
create index low_use_by_age on low_use (starts_at);

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
create index stored_checkpoints_time on stored_checkpoints (stored_at);
create index stored_checkpoints_deleted on stored_checkpoints (deleted_at)
    where deleted_at is not null;

-- Append-only, as charges.
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

-- Days whose charging has begun. What is learned of them later corrects their charges.
create table storage_days (
    day date primary key,
    is_charged boolean not null default false
);

-- Jobs of whose stored checkpoints something was learned: their charged days from first_day on are
-- compared with it again.
create table storage_due (
    job_id text primary key,
    tenant_id text not null,
    first_day date not null
);
