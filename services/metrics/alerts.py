"""Alerts as events: each is raised once, and cleared when it is over.

The current alerts are rows of `alerts`, written in the transaction that emits the event.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.metrics import AlertCleared, AlertKind, AlertRaised
from services.metrics import store
from services.metrics.core.health import Finding
from services.metrics.instruments import ALERTS
from services.metrics.store import RunRow
from services.runtime import logs
from services.runtime.transaction import Tx

log = logs.get()


class OfRun(Protocol):
    """A record of a run."""

    @property
    def tenant_id(self) -> str: ...
    @property
    def job_id(self) -> str: ...
    @property
    def run_id(self) -> str: ...
    @property
    def attempt(self) -> int: ...


def of(record: OfRun, kind: AlertKind, detail: str, **facts: Any) -> AlertRaised:
    """About the run of this record."""
    return AlertRaised(**run_of(record), alert=kind, detail=detail, **facts)


async def raise_once(tx: Tx, alert: AlertRaised, *, about: str = "", again: bool = False) -> None:
    """Emit the alert unless it was raised before; `again`: also after it was cleared.

    `about` distinguishes alerts of one kind, which their series does otherwise. Its tenant is the
    one that the scheduler names; what a batch says of its tenant is a claim.
    """
    if not await store.raise_alert(
        tx.connection, alert.run_id, alert.alert, about or alert.series or "", again=again
    ):
        return
    tenant_id = await store.tenant_of(tx.connection, alert.run_id) or alert.tenant_id
    await tx.emit(alert.model_copy(update={"tenant_id": tenant_id}), tenant_id=tenant_id)
    ALERTS.labels(alert.alert).inc()
    log.info(
        "alert raised",
        run_id=alert.run_id,
        alert=alert.alert,
        series=alert.series,
        tenant_id=tenant_id,
    )


async def raise_left_out(
    tx: Tx,
    records: Iterable[tuple[OfRun, str]],
    *,
    about: str,
    kind: AlertKind = AlertKind.SAMPLES_DROPPED,
) -> None:
    """Say once per run why records are left out: by the first of its records, with the reason."""
    first: dict[str, tuple[OfRun, str]] = {}
    for record, reason in records:
        first.setdefault(record.run_id, (record, reason))
    for run_id in sorted(first):  # all transactions lock rows in this order
        record, reason = first[run_id]
        await raise_once(tx, of(record, kind, reason), about=about)


async def raise_about_run(tx: Tx, run: RunRow, finding: Finding) -> None:
    """Emit what the windows of the run say, unless it is raised already."""
    facts = {name: getattr(finding, name) for name in ("series", "value", "threshold")}
    facts["step"] = run.progress.step if run.progress else None
    await raise_once(tx, of(run, AlertKind(finding.alert), finding.detail, **facts), again=True)


async def clear(
    tx: Tx, run: RunRow, alert: str, detail: str, cause: Event[Payload] | None = None
) -> None:
    """Clear this alert about the run, if it is active."""
    if not await store.clear_alert(tx.connection, run.run_id, alert):
        return
    cleared = AlertCleared(**run_of(run), alert=AlertKind(alert), detail=detail)
    await tx.emit(cleared, tenant_id=run.tenant_id, cause=cause)
    log.info("alert cleared", run_id=run.run_id, alert=alert, tenant_id=run.tenant_id)


async def clear_all(tx: Tx, run: RunRow, detail: str, cause: Event[Payload]) -> None:
    """The run has ended: nothing about it needs attention any more."""
    for alert in await store.active_alerts(tx.connection, run.run_id):
        await clear(tx, run, alert, detail, cause)


def run_of(record: OfRun) -> dict[str, Any]:
    """The fields by which an event names its run."""
    return {name: getattr(record, name) for name in ("tenant_id", "job_id", "run_id", "attempt")}
