"""The silences of a tenant."""

from datetime import datetime

from services.gateway.queries.rows import Connection, Row, as_row, as_rows

# Of tenant $1 at the time $2.
IN_FORCE = "silences.tenant_id = $1 and changed_seq > ended_seq and ends_at > $2"


async def in_force(connection: Connection, tenant_id: str, now: datetime) -> list[Row]:
    """Those that end first, first; a tenant has 200 at most."""
    rows = await connection.fetch(
        f"select * from silences where {IN_FORCE} order by ends_at, silence_id",
        tenant_id,
        now,
    )
    return as_rows(rows)


async def find(connection: Connection, tenant_id: str, silence_id: str) -> Row | None:
    """Also one that is over or was ended."""
    return as_row(
        await connection.fetchrow(
            "select * from silences where tenant_id = $1 and silence_id = $2",
            tenant_id,
            silence_id,
        )
    )
