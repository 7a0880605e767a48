"""The numbers beside the links of the navigation: open alerts, and parked records."""

from services.gateway import parked_queries, queries
from services.gateway.context import Caller, Gateway
from services.gateway.core.silences import silence_of
from services.gateway.queries.rows import Connection

MAX_ALERTS = 99


async def badges(gateway: Gateway, connection: Connection, caller: Caller) -> dict[str, int]:
    """What every page passes to its template. `num_alerts`: of at most 100 open alerts, those that
    are not silenced; 100 are shown as "99+"."""
    now = gateway.platform.clock.now()
    found = await queries.alerts.open_ones(connection, caller.tenant_id, MAX_ALERTS + 1)
    silences = await queries.silences.in_force(connection, caller.tenant_id, now) if found else []
    not_silenced = [
        row
        for row in found
        if silence_of(silences, row["alert"], row["job_id"], row["project"]) is None
    ]
    return {
        "num_alerts": len(not_silenced),
        "num_parked": await parked_queries.count_open(connection),
    }
