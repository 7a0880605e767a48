-- The names of a job's series, of all runs and ranks: their number is bounded.
create table series_names (
    job_id text not null,
    name text not null,
    primary key (job_id, name)
);
-- Locked while names are added. Samples of names beyond the bound are left out and counted.
create table sample_heads (
    job_id text primary key,
    num_names integer not null default 0,
    num_samples_left_out bigint not null default 0
);
insert into series_names (job_id, name) select distinct job_id, name from series;
insert into sample_heads (job_id, num_names)
    select job_id, count(*) from series_names group by job_id;
