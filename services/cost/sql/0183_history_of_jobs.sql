-- What jobs of the same name, command or project took: estimates are made from it.
alter table jobs add column of_tenant text;
-- A digest of the command.
alter table jobs add column command text;
alter table jobs add column succeeded_at timestamptz;
create index jobs_by_name on jobs (of_tenant, name, succeeded_at desc)
    where succeeded_at is not null;
create index jobs_by_command on jobs (of_tenant, command, succeeded_at desc)
    where succeeded_at is not null;
create index jobs_by_project on jobs (of_tenant, project, succeeded_at desc)
    where succeeded_at is not null;
