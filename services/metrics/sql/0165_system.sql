-- What pods say of themselves, over all ranks of a job, whatever else these log.
create index series_of_system on series (job_id, rank, name) where name like 'system/%';
