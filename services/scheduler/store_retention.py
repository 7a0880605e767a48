"""Deletions by age: one function per statement."""

import asyncpg


async def delete_runs(connection: asyncpg.Connection, days: int, limit: int) -> int:
    """Delete some runs that ended so long ago, with their pods and allocations. How many."""
    num_deleted: int = await connection.fetchval(
        """with old as (
            select run_id from runs
            where ended_at < statement_timestamp() - make_interval(days => $1)
            order by ended_at limit $2
        ), old_slots as (
            delete from allocation_slots using allocations, old
            where allocation_slots.allocation_id = allocations.allocation_id
                and allocations.run_id = old.run_id
        ), old_allocations as (
            delete from allocations using old where allocations.run_id = old.run_id
        ), old_pods as (
            delete from pods using old where pods.run_id = old.run_id
        ), old_runs as (
            delete from runs using old where runs.run_id = old.run_id returning runs.run_id
        )
        select count(*) from old_runs""",
        days,
        limit,
    )
    return num_deleted


async def delete_leftovers(connection: asyncpg.Connection) -> int:
    """Delete sightings and heartbeats of pods that are of no live run. How many."""
    num_deleted: int = await connection.fetchval(
        """with live as (
            select pod_id from pods join runs using (run_id) where ended_at is null
        ), old_sightings as (
            delete from sightings where pod_id not in (select pod_id from live) returning 1
        ), old_heartbeats as (
            delete from heartbeats where pod_id not in (select pod_id from live) returning 1
        )
        select (select count(*) from old_sightings) + (select count(*) from old_heartbeats)"""
    )
    return num_deleted
