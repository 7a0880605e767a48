-- Budgets: what may be spent, and what the spend has reached.
create table budgets (
    tenant_id text not null,
    name text not null,
    changed_seq bigint not null,
    version bigint not null,
    is_removed boolean not null,
    limit_micro_usd bigint not null,
    period text not null,
    study_id text,
    job_id text,
    warn_percents jsonb not null,
    at_limit text not null,
    reached_seq bigint not null,
    reached_percent bigint not null,
    spent_micro_usd bigint not null,
    reached_at timestamptz,
    primary key (tenant_id, name)
);
