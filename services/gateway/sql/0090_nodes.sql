-- What a cluster says of its nodes.
alter table nodes add column is_spot boolean;
alter table nodes add column topology text;
alter table nodes add column unschedulable_reason text;
