-- What devices were last charged at, so that slots of a study without a charge have a price.
create table device_prices (
    pool text not null,
    device_type text not null,
    price_micro_usd_per_slot_hour bigint not null,
    primary key (pool, device_type)
);

-- Empty for allocations of an earlier release: they have no price before their study's first charge.
alter table trial_allocations
    add column pool text not null default '',
    add column device_type text not null default '';
