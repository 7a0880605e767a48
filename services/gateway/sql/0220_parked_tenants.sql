-- A parked record belongs to the tenant that it names; one that names none, to that of operators.
alter table parked add column tenant_id text not null default 'default';
drop index parked_listed;
create index parked_listed on parked (tenant_id, state, parked_at desc, parked_id desc)
    where parked_at is not null;
drop index parked_in_group;
create index parked_in_group on parked
    (tenant_id, service, topic, reason, event_type, state, parked_at desc, parked_id desc)
    where parked_at is not null;

alter table parked_groups add column tenant_id text not null default 'default';
alter table parked_groups drop constraint parked_groups_pkey;
alter table parked_groups
    add primary key (tenant_id, service, topic, reason, event_type);
