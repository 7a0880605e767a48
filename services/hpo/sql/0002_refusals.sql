-- Jobs that were refused, and how many of a study's trials in a row.
alter table studies add column num_refused_in_row integer not null default 0;
alter table job_ends add column is_refused boolean not null default false;
