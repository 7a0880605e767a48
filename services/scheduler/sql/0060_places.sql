-- One tenant's early cancels are counted apart from the others'.
create index early_cancels_of_tenant on early_cancels (tenant_id);

-- A job that never ran has no pod directories, so none are kept for it.
update jobs set pods_removed_at = finished_at
where finished_at is not null and pods_removed_at is null and num_runs = 0;
