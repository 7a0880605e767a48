-- What was accepted, as canonical text. `spec` is for showing and cannot be compared: out of jsonb
-- comes 1e23 as a whole number, and Python holds 1, 1.0 and true for equal. Rows from before this
-- file get theirs by a rebuild; until then a repeat of their request is answered with 202.
alter table jobs add column accepted_spec text;
alter table studies add column accepted_spec text;
