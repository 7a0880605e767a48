-- Nodes of a cluster: their devices have no numbers of ours, and they may refuse new runs.
alter table nodes alter column first_device drop not null;
alter table nodes add column is_spot boolean;
alter table nodes add column topology text;
alter table nodes add column unschedulable text not null default '';
