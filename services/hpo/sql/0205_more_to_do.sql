-- Whether the search ends and has more paused trials than one transaction ends.
alter table studies add column has_more boolean not null default false;
create index studies_with_more on studies (study_id) where has_more;
