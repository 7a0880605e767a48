-- A rendezvous port is held by one live run. All nodes are parts of one machine.
-- Earlier versions took any port that was free at the grant; a run whose port is held twice gets
-- another below the range, for those of its pods that have not started.
with numbered as (
    select run_id, row_number() over (partition by master_port order by fence) as claim,
        row_number() over (order by fence) as number
    from runs where ended_at is null
)
update runs set master_port = 1024 + number from numbered
    where numbered.run_id = runs.run_id and claim > 1;
create unique index runs_port_held on runs (master_port) where ended_at is null;

-- Heartbeats are kept for pods of live runs only.
delete from heartbeats where not exists (
    select from pods join runs using (run_id)
    where ended_at is null and pods.pod_id = heartbeats.pod_id and runs.run_id = heartbeats.run_id);
