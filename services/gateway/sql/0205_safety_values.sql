-- The value of the study's safety metric, of a trial that completed.
alter table trials add column safety double precision;
