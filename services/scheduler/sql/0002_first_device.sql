-- Virtual nodes share a machine's devices: slot n of a node is the machine's device first_device + n.
alter table nodes add column first_device integer not null default 0 check (first_device >= 0);
