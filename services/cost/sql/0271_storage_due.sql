-- Jobs of whose stored checkpoints something was learned: their charged days from first_day on are
-- compared with it again.
create table storage_due (
    job_id text primary key,
    tenant_id text not null,
    first_day date not null
);
