-- Was the slot's node spot capacity at the grant? The release says the same.
alter table allocation_slots add column is_spot boolean not null default false;
