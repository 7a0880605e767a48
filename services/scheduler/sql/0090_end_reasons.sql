-- Why the platform ended a pod, or did not start it, where its own exit does not tell.
alter table pods add column end_kind text;
alter table pods add column end_detail text;
-- Runs in a row that the platform ended before they started: they use no retry, each waits longer.
alter table jobs add column num_disruptions integer not null default 0;
