-- Budgets that are used up: no job that they cover gets a run.
create table budget_holds (
    tenant_id text not null,
    name text not null,
    study_id text,
    job_id text,
    detail text not null,
    primary key (tenant_id, name)
);
