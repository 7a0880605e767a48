-- Budgets, and the spend that they are compared with.

-- Versions only grow, also those of a name that is used again.
create sequence budget_versions;
create table budgets (
    tenant_id text not null,
    name text not null,
    version bigint not null,
    -- As in the contract, as text.
    spec text not null,
    -- The highest level that was told in the period that began at period_starts_at.
    reached_percent integer not null default 0,
    period_starts_at timestamptz,
    primary key (tenant_id, name)
);

-- Jobs that were told to stop because of a budget: once per crossing.
create table budget_stops (
    tenant_id text not null,
    name text not null,
    job_id text not null,
    primary key (tenant_id, name, job_id),
    foreign key (tenant_id, name) references budgets on delete cascade
);

-- The studies of jobs. Kept like charges: spend is read by study for as long.
create table trial_jobs (
    job_id text primary key,
    study_id text not null
);

-- What was charged for the time of each day (UTC): for the whole tenant where study_id is ''.
-- Charges of before this table count for the day on which they ended.
create table daily_spend (
    tenant_id text not null,
    study_id text not null,
    day date not null,
    charged_micro_usd numeric not null,
    primary key (tenant_id, study_id, day)
);
insert into daily_spend
    select tenant_id, '', day, charged_micro_usd from spend_by_day;
