-- Which alerts nobody is called for, until when. A row goes when its silence is ended.
create table silences (
    silence_id text primary key,
    tenant_id text not null,
    alert text,
    job_id text,
    project text,
    ends_at timestamptz not null,
    reason text not null,
    created_at timestamptz not null
);
create index silences_of_tenant on silences (tenant_id, ends_at);
create index silences_by_age on silences (ends_at);

-- The project that each live job is part of.
create table job_projects (
    job_id text primary key,
    project text,
    finished_at timestamptz
);
create index job_projects_by_age on job_projects (finished_at) where finished_at is not null;

-- Deliveries of silenced alerts: sent once the silence is over, if the alert is still open then.
create table held_deliveries (
    id bigint generated always as identity primary key,
    webhook text not null,
    event_id text not null,
    body text not null,
    tenant_id text not null,
    job_id text not null,
    run_id text not null,
    alert text not null,
    held_until timestamptz not null,
    unique (webhook, event_id)
);
create index held_deliveries_due on held_deliveries (webhook, held_until);
create index held_deliveries_of_alert on held_deliveries (run_id, alert);
create index held_deliveries_of_tenant on held_deliveries (tenant_id);
create index held_deliveries_by_age on held_deliveries (held_until);
