-- Since when nothing was heard of a run's pods; shown while the run is suspect.
alter table runs add column silent_since timestamptz;
