-- Jobs and studies by name, and studies by state, the newest first.
create index requests_of_jobs_named on requests (name, asked_at desc, subject_id)
    where pool is not null;
create index requests_of_studies_named on requests (name, asked_at desc, subject_id)
    where sampler is not null;
create index studies_of_state on studies (tenant_id, state, listed_at desc, study_id desc);
