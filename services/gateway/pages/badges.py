"""The numbers beside the links of the navigation: open alerts, and parked records."""

from services.gateway import parked_queries, queries
from services.gateway.context import Caller, Gateway
from services.gateway.queries.rows import Connection

MAX_ALERTS = 99


async def badges(gateway: Gateway, connection: Connection, caller: Caller) -> dict[str, int]:
    """What every page passes to its template. `num_alerts`: open alerts that are not silenced,
    counted up to 100, which is shown as "99+"."""
    return {
        "num_alerts": await queries.alerts.num_not_silenced(
            connection, caller.tenant_id, gateway.platform.clock.now(), MAX_ALERTS + 1
        ),
        "num_parked": await parked_queries.count_open(connection, caller.tenant_id),
    }
