-- When the scheduler itself last saw each pod of a live run alive: it bounds what a pod may claim
-- about its end. Written every few seconds, for all pods by one statement.
create table sightings (
    pod_id text primary key,
    seen_at timestamptz not null
) with (fillfactor = 50);
