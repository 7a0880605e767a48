-- Time in which devices were used too little, or not at all: each alert by itself.
alter table low_use add column alert text not null default 'low_utilisation';
alter table low_use drop constraint low_use_pkey;
alter table low_use add primary key (run_id, alert, starts_at);

-- What ran on spot nodes lately.
create index charges_on_spot on charges (ends_at) where is_spot;

-- The jobs that succeeded lately.
create index jobs_succeeded on jobs (of_tenant, succeeded_at) where succeeded_at is not null;
