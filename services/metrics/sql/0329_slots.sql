-- How many slots a run has: it can have as many ranks. Null: not known, or of an earlier release.
alter table runs add column num_slots integer;
