-- Which device of the machine a held slot is, fixed at the grant: nodes may be cut anew while pods
-- live. Null for slots of CPUs, which are shared. All nodes with devices are parts of one machine.
alter table allocation_slots add column device integer check (device >= 0);
update allocation_slots set device = slot + first_device
    from nodes where nodes.node_id = allocation_slots.node_id and nodes.device_type <> 'cpu';
-- A device is held once, by whatever node it was granted.
create unique index allocation_slots_device_held on allocation_slots (device)
    where released_at is null and device is not null;
