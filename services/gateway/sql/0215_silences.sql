-- Silences, and the list of alerts of a tenant.
create table silences (
    silence_id text primary key,
    tenant_id text not null,
    changed_seq bigint not null,
    alert text,
    job_id text,
    project text,
    ends_at timestamptz,
    reason text not null,
    created_at timestamptz,
    command_event_id text not null,
    ended_seq bigint not null
);
create index silences_in_force on silences (tenant_id, ends_at) where changed_seq > ended_seq;

alter table alerts add column tenant_id text;
alter table alerts add column cleared_at timestamptz;
update alerts set tenant_id = jobs.tenant_id from jobs where jobs.job_id = alerts.job_id;
create index alerts_listed on alerts (tenant_id, raised_at desc, run_id desc, alert desc)
    where raised_seq >= 0;
create index alerts_of_job_listed on alerts (job_id, raised_at desc, run_id desc, alert desc)
    where raised_seq >= 0;
