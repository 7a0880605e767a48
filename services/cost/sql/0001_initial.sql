-- Allocations that are known, open ones among them, and the charges made for them.

create table allocations (
    allocation_id text primary key,
    tenant_id text not null,
    job_id text not null,
    pool text not null,
    device_type text not null,
    num_slots integer not null,
    granted_at timestamptz not null,
    released_at timestamptz
);
create index allocations_open on allocations (job_id) where released_at is null;

-- Append-only: a correction is a row of its own that reverses another.
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
    ends_at timestamptz not null check (ends_at > starts_at),
    price_id text not null,
    price_micro_usd_per_slot_hour bigint not null,
    amount_micro_usd bigint not null,
    reverses_charge_id text references charges,
    unique (allocation_id, price_id, reverses_charge_id)
);
create index charges_job on charges (job_id);
create index charges_tenant on charges (tenant_id);

create function refuse_change() returns trigger language plpgsql as $$
begin
    raise exception 'charges are append-only: write a reversing row';
end $$;
create trigger charges_append_only before update or delete on charges
    for each row execute function refuse_change();
