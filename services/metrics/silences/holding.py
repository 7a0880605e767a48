"""What becomes of deliveries while their alert is silenced.

A silenced alert is held back. Once its silence is over, it is sent if it is still open, and dropped
if not. That an alert is over is told at once, silenced or not, to whom its begin was told: others
would wait for it. Where its begin was held back, neither is sent.
"""

from collections.abc import Sequence
from datetime import datetime

import asyncpg

from services.metrics import store_watched
from services.metrics.core.silences import About, Silence, silenced_until
from services.metrics.core.webhooks import AlertEvent, Turn
from services.metrics.instruments import DELIVERIES
from services.metrics.silences import store
from services.metrics.silences.store import Held
from services.metrics.webhooks import store as store_deliveries
from services.metrics.webhooks.store import NewDelivery
from services.runtime import logs
from services.runtime.transaction import Tx

log = logs.get()

MAX_HELD = 10_000  # of one webhook
MAX_RELEASED = 100


async def until(tx: Tx, alert: AlertEvent) -> datetime | None:
    """Until when this alert is silenced. Its silences do not change before the commit."""
    silences = await store.in_force(tx.connection, alert.tenant_id, lock=True)
    if not silences:
        return None
    return await _until(tx.connection, silences, alert.alert, alert.job_id)


async def hold(
    tx: Tx, webhook: str, alert: AlertEvent, event_id: str, body: str, ends_at: datetime
) -> None:
    held = Held(0, event_id, body, alert.tenant_id, alert.job_id, alert.run_id, alert.alert)
    is_held = await store.hold(tx.connection, webhook, held, ends_at, MAX_HELD)
    tx.after_commit(DELIVERIES.labels(webhook, "held" if is_held else "dropped").inc)


async def is_told(tx: Tx, webhook: str, cleared: AlertEvent) -> bool:
    """Was the webhook told of the alert that is over now? What was held back of it is dropped.

    An alert that was raised of several series may be told of one and held back of another.
    """
    num_held = await store.forget_held(tx.connection, webhook, cleared.run_id, cleared.alert)
    tx.after_commit(lambda: DELIVERIES.labels(webhook, "over").inc(num_held))
    return not num_held or num_held < await store.num_raised(
        tx.connection, cleared.run_id, cleared.alert
    )


async def release(connection: asyncpg.Connection, webhook: str, max_waiting: int) -> int:
    """Judge again what was held back until now, in the caller's transaction. Returns how many."""
    due = await store.lock_due(connection, webhook, MAX_RELEASED)
    if not due:
        return 0
    by_tenant = {
        tenant_id: await store.in_force(connection, tenant_id)
        for tenant_id in {held.tenant_id for held in due}
    }
    for held in due:
        ends_at = await _until(connection, by_tenant[held.tenant_id], held.alert, held.job_id)
        if ends_at is not None:
            await store.hold_longer(connection, held, ends_at)
            continue
        await store.end_hold(connection, held)
        is_open = await store.is_open(connection, held.run_id, held.alert)
        new = NewDelivery(webhook, held.event_id, held.body, _turn(held))
        is_sent = is_open and await store_deliveries.add(connection, new, max_waiting)
        outcome = "released" if is_sent else "dropped" if is_open else "over"
        DELIVERIES.labels(webhook, outcome).inc()
        log.info("silence is over", webhook=webhook, event_id=held.event_id, outcome=outcome)
    return len(due)


def _turn(held: Held) -> Turn:
    """Only begins are held back."""
    return AlertEvent(held.alert, held.tenant_id, held.job_id, held.run_id, is_raised=True).turn


async def _until(
    connection: asyncpg.Connection, silences: Sequence[Silence], alert: str, job_id: str
) -> datetime | None:
    if not silences:
        return None
    project = None
    if any(each.project is not None for each in silences):
        project = await store_watched.project_of(connection, job_id)
    about = About(alert, job_id, project)
    return silenced_until(silences, about, await store.now(connection))
