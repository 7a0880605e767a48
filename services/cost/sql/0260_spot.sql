-- Spot capacity may have prices of its own. How many of an allocation's slots are on such nodes, and
-- on which: {"node-b": 8}.
alter table allocations
    add column num_spot_slots integer not null default 0,
    add column spot_slots jsonb;
alter table node_offers add column is_spot boolean not null default false;

-- The slots of an allocation on spot nodes have charges of their own, which may be at the same price.
alter table charges add column is_spot boolean not null default false;
drop index charges_once;
create unique index charges_once on charges (allocation_id, price_id, is_spot, correction)
    where reverses_charge_id is null;
