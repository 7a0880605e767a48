-- What runs have said of their surroundings: packages, seed, devices, data.
create table descriptions (
    run_id text primary key,
    job_id text not null,
    attempt bigint not null,
    described_seq bigint not null,
    surroundings jsonb
);
create index descriptions_of_job on descriptions (job_id, attempt desc);
