-- The nodes of a live run that do not answer, as announced.
alter table runs add column unreachable text[] not null default '{}';
