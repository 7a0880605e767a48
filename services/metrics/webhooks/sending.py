"""Sends alerts, failing checkpoints and budgets that are reached to the operator's webhooks.

An event becomes a row per webhook in the transaction that handles it; one task per webhook sends
them, so that a slow one holds up nobody else. The end of an alert waits until its begin is sent or
given up. Counted as tried, then sent, then deleted: a webhook may get an event twice, with the same
`Drivetrain-Delivery`, and loses none until it is given up.
What becomes of silenced alerts: `silences/holding.py`.

A receiver is not trusted (`calling.py`), and has 10 s for everything.
"""

import asyncio
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from drivetrain_schemas.budgets import BudgetReached, BudgetReleased
from drivetrain_schemas.checkpoints import CheckpointingFailed, CheckpointingRecovered
from drivetrain_schemas.envelope import Event, encode_structured
from drivetrain_schemas.metrics import AlertCleared, AlertKind, AlertRaised
from services.metrics import alerts, store
from services.metrics.core.webhooks import AlertEvent, Networks, Turn, Webhook, wait_seconds
from services.metrics.instruments import DELIVERIES
from services.metrics.silences import holding
from services.metrics.webhooks import calling
from services.metrics.webhooks import store as store_deliveries
from services.metrics.webhooks.store import Delivery, NewDelivery
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.processing import HandlerTable
from services.runtime.repeating import repeat
from services.runtime.service import Platform
from services.runtime.transaction import Tx

log = logs.get()

SEND_SECONDS = 10.0
LOOK_SECONDS = 1.0
MAX_WAITING = 10_000
# Events older than this are history: a new webhook does not get them.
MAX_AGE = timedelta(hours=1)
_OF_ALERTS = (AlertRaised, AlertCleared, CheckpointingFailed, CheckpointingRecovered)
SENT = (*_OF_ALERTS, BudgetReached, BudgetReleased)


def handlers(webhooks: Sequence[Webhook]) -> HandlerTable:
    """Without webhooks too, so that what this service may read does not depend on a file."""
    return dict.fromkeys(SENT, partial(_enqueue, webhooks))


async def _enqueue(webhooks: Sequence[Webhook], tx: Tx, event: Event[Any]) -> None:
    alert = alert_of(event)
    kind = None if alert is None else alert.alert
    if alert is not None:
        await _note(tx, alert, event)  # also if no webhook receives it
    is_saving = isinstance(event.payload, AlertCleared) and kind == AlertKind.NO_CHECKPOINTS
    told = CheckpointingRecovered.kind.type if is_saving else event.type
    wanted = [each for each in webhooks if each.wants(event.tenant_id, told, kind)]
    if not wanted:
        return
    now = await tx.connection.fetchval("select clock_timestamp()")
    if event.occurred_at < now - MAX_AGE:
        return
    body = encode_structured(event)[2].decode()
    turn = _turn(event, alert)
    silenced_until = None
    if alert is not None and alert.is_raised:
        silenced_until = await holding.until(tx, alert)
    for webhook in wanted:
        if alert is not None and silenced_until is not None:
            await holding.hold(tx, webhook.name, alert, event.event_id, body, silenced_until)
            continue
        over = None if alert is None or alert.is_raised else alert
        if over is not None and not await holding.is_told(tx, webhook.name, over):
            continue
        new = NewDelivery(webhook.name, event.event_id, body, turn)
        is_added = await store_deliveries.add(tx.connection, new, MAX_WAITING)
        if not is_added:
            DELIVERIES.labels(webhook.name, "dropped").inc()
            log.warning("delivery dropped: too many wait", webhook=webhook.name)


def alert_of(event: Event[Any]) -> AlertEvent | None:
    """The alert that the event is about: those of this service, and that a run saves nothing."""
    payload = event.payload
    if not isinstance(payload, _OF_ALERTS):
        return None
    return AlertEvent(
        alert=str(getattr(payload, "alert", AlertKind.NO_CHECKPOINTS)),
        tenant_id=event.tenant_id,
        job_id=payload.job_id,
        run_id=payload.run_id,
        is_raised=isinstance(payload, AlertRaised | CheckpointingFailed),
    )


def _turn(event: Event[Any], alert: AlertEvent | None) -> Turn | None:
    if isinstance(event.payload, BudgetReached | BudgetReleased):
        name = f"budget/{event.tenant_id}/{event.payload.name}"
        return Turn(name, isinstance(event.payload, BudgetReached))
    return None if alert is None else alert.turn


async def _note(tx: Tx, alert: AlertEvent, event: Event[Any]) -> None:
    """Whether checkpoints are saved is another service's news: what is held back by a silence is
    judged by it. What arrives about a run after its end is over at once."""
    if not alert.is_raised:
        if isinstance(event.payload, CheckpointingRecovered):
            await store.clear_alert(tx.connection, alert.run_id, alert.alert)
        return
    run = await store.lock_run(
        tx.connection, alert.run_id, alert.job_id, alert.tenant_id, event.payload.attempt
    )
    if isinstance(event.payload, CheckpointingFailed):
        await store.raise_alert(tx.connection, alert.run_id, alert.alert, again=True)
    if run.has_ended:
        await alerts.clear(tx, run, alert.alert, f"the run has ended: {run.state}", event)


async def deliver(webhooks: Iterable[Webhook], networks: Networks, platform: Platform) -> None:
    """Until cancelled."""
    async with asyncio.TaskGroup() as group:
        for webhook in webhooks:
            group.create_task(Sender(webhook, networks, platform.database).run(platform))
        await platform.stopping.wait()


class Sender:
    """Sends to one webhook, one delivery at a time."""

    def __init__(self, webhook: Webhook, networks: Networks, database: Database) -> None:
        self._webhook = webhook
        self._networks = networks
        self._database = database

    async def run(self, platform: Platform) -> None:
        async def work() -> None:
            while await self.release() or await self.send_next():
                pass

        await repeat(work, platform.clock, LOOK_SECONDS, "webhooks wait for Postgres")

    async def release(self) -> bool:
        """Judge again what a silence has held back until now; False where there is nothing."""
        async with self._database.connection() as connection, connection.transaction():
            return bool(await holding.release(connection, self._webhook.name, MAX_WAITING))

    async def send_next(self) -> bool:
        """Try the next delivery that is due; False where none is."""
        async with self._database.connection() as connection:
            delivery = await store_deliveries.begin(
                connection, self._webhook.name, 2 * SEND_SECONDS
            )
        if delivery is None:
            return False
        error: str | None = None
        try:
            async with asyncio.timeout(SEND_SECONDS):
                status = await self._post(delivery)
            if not 200 <= status < 300:
                error = f"it answered {status}"
        except calling.FAILURES as failed:
            error = f"{type(failed).__name__}: {failed}"
        await self._note(delivery, error)
        return True

    async def _post(self, delivery: Delivery) -> int:
        body = delivery.body.encode()
        headers = {
            "Content-Type": "application/cloudevents+json",
            "User-Agent": "drivetrain",
            "Drivetrain-Delivery": delivery.event_id,
        }
        if self._webhook.secret:
            digest = hmac.digest(self._webhook.secret.encode(), body, hashlib.sha256).hex()
            headers["Drivetrain-Signature"] = f"sha256={digest}"
        async with calling.connections(self._networks) as pool:
            return await calling.post(pool, self._webhook.url, headers, body)

    async def _note(self, delivery: Delivery, error: str | None) -> None:
        wait = None if error is None else wait_seconds(delivery.num_tries)
        outcome = "sent" if error is None else "failed" if wait is not None else "given_up"
        async with self._database.connection() as connection:
            if wait is None:
                await store_deliveries.end(connection, delivery.id)
            else:
                await store_deliveries.again(connection, delivery.id, wait)
        DELIVERIES.labels(self._webhook.name, outcome).inc()
        log.info(
            "webhook called",
            webhook=self._webhook.name,
            event_id=delivery.event_id,
            num_tries=delivery.num_tries,
            outcome=outcome,
            error=error and error[:300],
        )
