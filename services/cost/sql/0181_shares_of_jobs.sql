-- The shares of pool_shares by job, for reports. job_id is '' where no job is known: what was added
-- up before this table existed, and what no tenant pays.
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
insert into job_shares
    select day, pool, device_type, tenant_id, '', kind, slot_microseconds, micro_usd
    from pool_shares;

-- How many slots of which node were held, such as {"node-a": 8}.
alter table allocations add column node_slots jsonb;
create index allocations_not_shared on allocations (allocation_id) where not is_shared;
create index allocations_run on allocations (run_id);
