-- The shares of pools and jobs by hour, for some weeks; those by day are kept.

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

-- A release that does not know the column shares out days only; the hours are added later.
alter table allocations add column is_by_hour boolean not null default false;
update allocations set is_by_hour = true
    where is_shared and released_at < now() - interval '37 days';
create index allocations_to_share_by_hour on allocations (released_at)
    where released_at is not null and not is_by_hour;
create index allocations_not_by_hour on allocations (allocation_id) where not is_by_hour;
