"""The table of sightings: when each pod of a live run was last seen alive, by Postgres' clock."""

from collections.abc import Collection, Mapping
from datetime import datetime

import asyncpg


async def put(connection: asyncpg.Connection, ages: Mapping[str, float]) -> None:
    """Pods, and how many seconds ago each was seen alive; an older sighting is ignored."""
    await connection.execute(
        """insert into sightings (pod_id, seen_at)
        select pod_id, clock_timestamp() - make_interval(secs => age)
        from unnest($1::text[], $2::float8[]) as seen (pod_id, age)
        join pods using (pod_id) join runs using (run_id) where ended_at is null
        order by pod_id
        on conflict (pod_id) do update set seen_at = excluded.seen_at
            where excluded.seen_at > sightings.seen_at""",
        list(ages),
        list(ages.values()),
    )


async def take(connection: asyncpg.Connection, pod_ids: Collection[str]) -> Mapping[str, datetime]:
    """Delete and return when each of these pods was last seen."""
    rows = await connection.fetch(
        "delete from sightings where pod_id = any($1) returning pod_id, seen_at", list(pod_ids)
    )
    return {row["pod_id"]: row["seen_at"] for row in rows}
