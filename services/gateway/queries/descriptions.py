"""What runs have said of their surroundings."""

from typing import Any

from services.gateway.queries.rows import Connection, as_row


async def newest(connection: Connection, job_id: str) -> dict[str, Any] | None:
    """Of the newest attempt that has said something; None where none has."""
    row = as_row(
        await connection.fetchrow(
            """
            select surroundings from descriptions
            where job_id = $1 and surroundings is not null order by attempt desc limit 1
            """,
            job_id,
        )
    )
    return None if row is None else row["surroundings"]


async def device_types(connection: Connection, pool: str) -> list[str]:
    """The types of the devices that a pool has now."""
    rows = await connection.fetch(
        """
        select distinct device_type from nodes
        where pool = $1 and not is_removed and device_type is not null
        """,
        pool,
    )
    return [row["device_type"] for row in rows]
