-- The platform's own cost stands beside the charge: the same slots from ends_at to platform_ends_at.
alter table charges
    add column platform_ends_at timestamptz,
    add column platform_micro_usd bigint not null default 0,
    -- How often the allocation's charges were replaced before this one was made.
    add column correction integer not null default 0,
    drop constraint charges_check,
    add constraint charges_has_time
        check (ends_at >= starts_at and (ends_at > starts_at or platform_ends_at is not null)),
    add constraint charges_platform_time check (platform_ends_at > ends_at);

-- One charge per (allocation, price) and correction, and one reversal of each.
drop index charges_once;
create unique index charges_once on charges (allocation_id, price_id, correction)
    where reverses_charge_id is null;
create unique index charges_reversed_once on charges (reverses_charge_id)
    where reverses_charge_id is not null;
create index charges_unpriced on charges (charge_id)
    where price_id = 'unpriced' and reverses_charge_id is null;
create index allocations_open_of_tenant on allocations (tenant_id) where released_at is null;

-- Running totals, kept by the statement that inserts a charge: a tenant's spend is read from these.
create table spend_by_day (
    tenant_id text not null,
    day date not null,
    charged_micro_usd numeric not null,
    platform_micro_usd numeric not null,
    primary key (tenant_id, day)
);
insert into spend_by_day
    select tenant_id, (ends_at at time zone 'UTC')::date, sum(amount_micro_usd), 0
    from charges group by 1, 2;

-- What no price covers, by kind; a reversal counts down.
create table unpriced_use (
    tenant_id text not null,
    pool text not null,
    device_type text not null,
    num_charges bigint not null,
    primary key (tenant_id, pool, device_type)
);
insert into unpriced_use
    select tenant_id, pool, device_type,
        sum(case when reverses_charge_id is null then 1 else -1 end)
    from charges where price_id = 'unpriced' group by 1, 2, 3;
drop index charges_tenant;
