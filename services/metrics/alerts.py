"""Alerts as events: each is raised once, and cleared when it is over.

The current alerts are rows of `alerts`, written in the transaction that emits the event.
"""

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.metrics import AlertCleared, AlertRaised
from services.metrics import store
from services.metrics.instruments import ALERTS
from services.metrics.store import RunRow
from services.runtime import logs
from services.runtime.transaction import Tx

log = logs.get()


async def raise_once(tx: Tx, alert: AlertRaised, *, about: str = "", again: bool = False) -> None:
    """Emit the alert unless it was raised before; `again`: also after it was cleared.

    `about` tells apart alerts of one kind that are not about a series.
    """
    if not await store.raise_alert(
        tx.connection, alert.run_id, alert.alert, alert.series or about, again=again
    ):
        return
    await tx.emit(alert, tenant_id=alert.tenant_id)
    ALERTS.labels(alert.alert).inc()
    log.info(
        "alert raised",
        run_id=alert.run_id,
        alert=alert.alert,
        series=alert.series,
        tenant_id=alert.tenant_id,
    )


async def clear_stalled(
    tx: Tx, run: RunRow, detail: str, cause: Event[Payload] | None = None
) -> None:
    """Clear the stall alert of the run, if it is active."""
    if not await store.clear_alert(tx.connection, run.run_id, "stalled"):
        return
    cleared = AlertCleared(
        tenant_id=run.tenant_id,
        job_id=run.job_id,
        run_id=run.run_id,
        attempt=run.attempt,
        alert="stalled",
        detail=detail,
    )
    await tx.emit(cleared, tenant_id=run.tenant_id, cause=cause)
    log.info("alert cleared", run_id=run.run_id, alert="stalled", tenant_id=run.tenant_id)
