-- When devices of a run were used too little, as alerts told. No end: until the run ended.
create table low_use (
    run_id text not null,
    starts_at timestamptz not null,
    ends_at timestamptz,
    tenant_id text not null,
    job_id text not null,
    -- Of the devices' time: how much was used when the alert was raised, and how much is expected.
    used_percent double precision not null,
    expected_percent double precision not null,
    primary key (run_id, starts_at)
);
create index low_use_of_tenant on low_use (tenant_id, starts_at);
create index low_use_by_age on low_use (starts_at);
