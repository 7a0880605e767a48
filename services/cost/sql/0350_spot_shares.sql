-- The part of pool_shares and job_shares that was of spot slots. What a release that does not know
-- these tables adds is in pool_shares and job_shares only: it counts as on demand.
create table pool_spot_shares (
    day date not null,
    pool text not null,
    device_type text not null,
    tenant_id text not null,
    kind text not null,
    slot_microseconds numeric not null,
    micro_usd numeric not null,
    primary key (day, pool, device_type, tenant_id, kind)
);
create table job_spot_shares (
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
