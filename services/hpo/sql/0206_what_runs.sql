-- What the gauges of searches show, so that nobody reads the trials or parses the status for it.
alter table studies
    add column state text not null default 'running',
    add column num_paused integer not null default 0;
create index studies_not_ended on studies (study_id) where finished_at is null;
