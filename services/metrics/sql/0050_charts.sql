-- The first step of each series, for the widths of charts; a poll reads the chunks after a position.
alter table series add column first_step bigint not null default 0;
update series set first_step = found.first_step
    from (
        select run_id, rank, series as name, min(min_step) as first_step
        from chunks group by run_id, rank, series
    ) as found
    where found.run_id = series.run_id and found.rank = series.rank and found.name = series.name;
drop index series_of_job;
create index series_of_job on series (job_id, rank, name);
create index chunks_by_arrival on chunks (job_id, rank, series, id);
