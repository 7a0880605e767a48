-- What nodes offered, what runs did with it, and the shares of each day of a pool.

create table node_offers (
    node_id text not null,
    pool text not null,
    device_type text not null,
    num_slots integer not null,
    starts_at timestamptz not null,
    ends_at timestamptz,
    primary key (node_id, starts_at)
);
create unique index node_offers_open on node_offers (node_id) where ends_at is null;
create index node_offers_ended on node_offers (ends_at);

-- What is known of a run, until its allocation is shared out.
create table run_facts (
    run_id text primary key,
    started_at timestamptz,
    -- Did it end so that what it had not saved must be done again?
    has_lost boolean not null default false,
    last_checkpoint_at timestamptz,
    blocked_seconds double precision not null default 0,
    noted_at timestamptz not null default now()
);
create index run_facts_noted on run_facts (noted_at);

alter table allocations
    add column run_id text,
    add column paid_ends_at timestamptz,
    -- Released ones are added to pool_shares some minutes later, once.
    add column is_shared boolean not null default false;
create index allocations_to_share on allocations (released_at)
    where released_at is not null and not is_shared;

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
