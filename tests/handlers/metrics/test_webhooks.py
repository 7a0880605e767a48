"""Deliveries to real sockets: receivers that hang, redirect, refuse, or answer without an end."""

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from ipaddress import ip_network
from typing import Any

import pytest
import pytest_asyncio

from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoints import (
    CheckpointingFailed,
    CheckpointingRecovered,
    SaveFailure,
)
from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.metrics import AlertCleared, AlertKind, AlertRaised
from drivetrain_schemas.runs import RunFailed, RunStarted
from services.metrics.core.webhooks import MAX_TRIES, Webhook
from services.metrics.handlers import HANDLERS, take_reports
from services.metrics.streams import take_samples
from services.metrics.webhooks import sending as webhooks
from services.metrics.webhooks.sending import Sender
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.events import handle, handle_batch, make_event
from tests.handlers.metrics.builders import JOB, make_heartbeat, make_samples

LOOPBACK = [ip_network("127.0.0.0/8")]
ALERT = AlertRaised(
    tenant_id="default",
    job_id=JOB,
    run_id=run_id_for(JOB, 1),
    attempt=1,
    alert=AlertKind.STALLED,
    detail="no step for 60 s",
)
SAVING: dict[str, Any] = {
    "tenant_id": "default",
    "job_id": JOB,
    "run_id": run_id_for(JOB, 1),
    "attempt": 1,
    "fence": 1,
}
FAILED = CheckpointingFailed(**SAVING, reason=SaveFailure.STORE_FULL, detail="no space")
STARTED = RunStarted(
    job_id=JOB, run_id=run_id_for(JOB, 1), attempt=1, fence=1, started_at=datetime.now(UTC)
)
ENDED = RunFailed(
    **{name: SAVING[name] for name in ("job_id", "run_id", "attempt", "fence")},
    exit_code=1,
    last_log="",
    ended_at=datetime.now(UTC),
)
TAKE_SAMPLES = partial(take_samples, RunTokens(None))
TAKE_REPORTS = partial(take_reports, RunTokens(None))
Answer = Callable[[asyncio.StreamWriter], Awaitable[None]]


@pytest_asyncio.fixture(loop_scope="session")
async def metrics(database: OpenDatabase) -> Database:
    return await database("metrics")


@dataclass
class Receiver:
    port: int = 0
    requests: list[bytes] = field(default_factory=list)

    @property
    def webhook(self) -> Webhook:
        return Webhook("oncall", f"http://127.0.0.1:{self.port}/hook", secret="shared")


@asynccontextmanager
async def receiving(answer: Answer) -> AsyncIterator[Receiver]:
    receiver = Receiver()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        receiver.requests.append(head + await reader.readexactly(length))
        try:
            await answer(writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()


def saying(text: str) -> Answer:
    async def answer(writer: asyncio.StreamWriter) -> None:
        writer.write(text.encode())
        await writer.drain()

    return answer


async def hangs(writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(3600)


async def never_ends(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000000\r\n\r\n")
    while True:
        writer.write(b"x" * 65536)
        await writer.drain()


NO = saying("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n")
OK = saying("HTTP/1.1 204 No Content\r\n\r\n")


async def enqueue(
    metrics: Database, *hooks: Webhook, payload: Payload = ALERT, **fields: Any
) -> None:
    await handle(metrics, webhooks.handlers(hooks), replace(make_event(payload), **fields))


async def waiting(metrics: Database) -> list[tuple[str, int]]:
    async with metrics.connection() as connection:
        rows = await connection.fetch("select webhook, num_tries from deliveries order by id")
    return [tuple(row) for row in rows]


async def due_now(metrics: Database) -> None:
    async with metrics.connection() as connection:
        await connection.execute("update deliveries set not_before = clock_timestamp()")


async def test_an_alert_is_sent_once_signed_and_as_a_cloud_event(metrics: Database) -> None:
    async with receiving(OK) as receiver:
        now = datetime.now(UTC)
        await enqueue(metrics, receiver.webhook, occurred_at=now, event_id="one")
        await enqueue(metrics, receiver.webhook, occurred_at=now, event_id="one")
        sender = Sender(receiver.webhook, LOOPBACK, metrics)
        assert await sender.send_next()
        assert not await sender.send_next()
    [request] = receiver.requests
    head, _, body = request.partition(b"\r\n\r\n")
    event = json.loads(body)
    assert (event["type"], event["data"]["alert"]) == ("alert.raised", "stalled")
    digest = hmac.digest(b"shared", body, hashlib.sha256).hex()
    assert f"Drivetrain-Signature: sha256={digest}".encode() in head
    assert b"Drivetrain-Delivery: one" in head
    assert await waiting(metrics) == []


@pytest.mark.parametrize(
    "answer",
    [
        saying("HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"),
        saying("HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n"),
        saying("not HTTP at all\r\n\r\n"),
        saying(""),
        hangs,
    ],
    ids=["error", "redirect", "garbage", "closed", "hangs"],
)
async def test_what_is_not_accepted_is_tried_again_later(
    metrics: Database, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "SEND_SECONDS", 1.0)
    async with receiving(answer) as receiver:
        await enqueue(metrics, receiver.webhook, occurred_at=datetime.now(UTC))
        sender = Sender(receiver.webhook, LOOPBACK, metrics)
        assert await sender.send_next()
        assert await waiting(metrics) == [("oncall", 1)]
        assert not await sender.send_next(), "not due yet"
        assert len(receiver.requests) == 1
        for _ in range(MAX_TRIES - 1):
            async with metrics.connection() as connection:
                await connection.execute(
                    "update deliveries set num_tries = $1, not_before = clock_timestamp()",
                    MAX_TRIES - 1,
                )
            if not await sender.send_next():
                break
    assert await waiting(metrics) == [], "given up"


async def test_an_answer_without_an_end_is_not_read(metrics: Database) -> None:
    async with receiving(never_ends) as receiver:
        await enqueue(metrics, receiver.webhook, occurred_at=datetime.now(UTC))
        assert await Sender(receiver.webhook, LOOPBACK, metrics).send_next()
    assert await waiting(metrics) == []


async def test_a_private_address_is_never_called(metrics: Database) -> None:
    async with receiving(OK) as receiver:
        await enqueue(metrics, receiver.webhook, occurred_at=datetime.now(UTC))
        assert await Sender(receiver.webhook, [], metrics).send_next()
        named = replace(receiver.webhook, url=f"http://localhost:{receiver.port}/")
        await due_now(metrics)
        assert await Sender(named, [], metrics).send_next()
        assert receiver.requests == []
    assert await waiting(metrics) == [("oncall", 2)]


@pytest.mark.parametrize("kind", AlertKind)
async def test_every_kind_of_alert_reaches_the_webhook_that_names_it(
    metrics: Database, kind: AlertKind
) -> None:
    is_ours = kind is not AlertKind.NO_CHECKPOINTS
    raised = ALERT.model_copy(update={"alert": kind}) if is_ours else FAILED
    hooks = (
        Webhook("named", "http://127.0.0.1/", alerts=frozenset({str(kind)})),
        Webhook("other", "http://127.0.0.1/", alerts=frozenset(set(AlertKind) - {kind})),
    )
    await enqueue(metrics, *hooks, payload=raised, occurred_at=datetime.now(UTC))
    assert await waiting(metrics) == [("named", 0)]


async def test_failing_checkpoints_are_told_and_that_they_work_again(metrics: Database) -> None:
    hook = Webhook("oncall", "http://127.0.0.1/", alerts=frozenset({"no_checkpoints"}))
    now = datetime.now(UTC)
    recovered = CheckpointingRecovered(**SAVING, step=3)
    for number, payload in enumerate((FAILED, recovered, FAILED)):
        event_id = f"event-{number}"
        await enqueue(metrics, hook, payload=payload, occurred_at=now, event_id=event_id)
    assert await waiting(metrics) == [("oncall", 0)] * 3


async def told(metrics: Database, hook: Webhook, *payloads: Payload) -> list[Payload]:
    """What the service emits reaches its webhooks as it does by Kafka, until nothing follows."""
    followed: list[Payload] = []
    for payload in payloads:
        event = replace(make_event(payload), occurred_at=datetime.now(UTC))
        more = await handle(metrics, webhooks.handlers([hook]), event)
        followed += [payload, *await told(metrics, hook, *more)]
    return followed


def kinds(requests: list[bytes]) -> list[tuple[str, str]]:
    bodies = [json.loads(request.partition(b"\r\n\r\n")[2]) for request in requests]
    return [(body["type"], body["data"].get("alert", "")) for body in bodies]


BEGINS = {
    "not_finite": ("alert.raised", "not_finite"),
    "samples_dropped": ("alert.raised", "samples_dropped"),
    "no_checkpoints": ("checkpointing.failed", ""),
}


async def something_is_wrong(metrics: Database, alert: str) -> list[Payload]:
    """Of `not_finite`, about two series."""
    if alert == "no_checkpoints":
        return [FAILED]
    if alert == "not_finite":
        samples = make_samples({"loss": {3: "nan"}, "accuracy": {3: "inf"}})
        return await handle_batch(metrics, TAKE_SAMPLES, make_event(samples))
    beat = make_event(make_heartbeat(num_dropped_samples=7))
    return await handle_batch(metrics, TAKE_REPORTS, beat)


@pytest.mark.parametrize("alert", BEGINS)
async def test_whatever_begins_at_a_receiver_ends_there_with_its_run(
    metrics: Database, alert: str
) -> None:
    async with receiving(OK) as receiver:
        await handle(metrics, HANDLERS, make_event(STARTED))
        begun = await something_is_wrong(metrics, alert)
        await told(metrics, receiver.webhook, *begun)
        ended = await handle(metrics, HANDLERS, make_event(ENDED))
        await told(metrics, receiver.webhook, *ended)
        while await Sender(receiver.webhook, LOOPBACK, metrics).send_next():
            pass
    assert kinds(receiver.requests) == [BEGINS[alert]] * len(begun) + [("alert.cleared", alert)]
    assert b"the run has ended: failed" in receiver.requests[-1]


@pytest.mark.parametrize("alert", ["not_finite", "no_checkpoints"])
async def test_what_is_told_of_a_run_after_its_end_ends_at_once(
    metrics: Database, alert: str
) -> None:
    async with receiving(OK) as receiver:
        await handle(metrics, HANDLERS, make_event(STARTED))
        await handle(metrics, HANDLERS, make_event(ENDED))
        begun = await something_is_wrong(metrics, alert)
        await told(metrics, receiver.webhook, *begun)
        while await Sender(receiver.webhook, LOOPBACK, metrics).send_next():
            pass
    found = kinds(receiver.requests)
    assert sorted(found) == sorted([BEGINS[alert]] * len(begun) + [("alert.cleared", alert)])
    assert found.index(("alert.cleared", alert)) > 0


async def test_a_webhook_of_checkpoints_alone_is_told_that_their_run_has_ended(
    metrics: Database,
) -> None:
    """Those that asked for alerts alone, and so for no begin of this, are not."""
    both = frozenset({"checkpointing.failed", "checkpointing.recovered"})
    alerts = frozenset({"alert.raised", "alert.cleared"})
    await handle(metrics, HANDLERS, make_event(STARTED))
    for name, events in (("saving", both), ("alerts", alerts)):
        await told(metrics, Webhook(name, "http://127.0.0.1/", events=events), FAILED)
    ended = await handle(metrics, HANDLERS, make_event(ENDED))
    for name, events in (("saving", both), ("alerts", alerts)):
        await told(metrics, Webhook(name, "http://127.0.0.1/", events=events), *ended)
    assert await waiting(metrics) == [("saving", 0), ("saving", 0)]


def _delivery(request: bytes) -> str:
    return request.split(b"Drivetrain-Delivery: ")[1].split(b"\r\n")[0].decode()


async def test_the_end_of_an_alert_waits_for_its_begin_and_other_alerts_do_not(
    metrics: Database,
) -> None:
    """A begin that failed is tried again later, and its end is no news before."""
    failing = ["begin", "end"]

    async def answer(writer: asyncio.StreamWriter) -> None:
        await (NO if _delivery(receiver.requests[-1]) in failing else OK)(writer)

    now = datetime.now(UTC)
    cleared = AlertCleared(
        **{name: SAVING[name] for name in ("tenant_id", "job_id", "run_id", "attempt")},
        alert=AlertKind.STALLED,
        detail="the run makes progress again",
    )
    told = {
        "begin": ALERT,
        "end": cleared,
        "begin again": ALERT,
        "other": ALERT.model_copy(update={"alert": AlertKind.STRAGGLER}),
    }
    async with receiving(answer) as receiver:
        for event_id, payload in told.items():
            await enqueue(
                metrics, receiver.webhook, payload=payload, occurred_at=now, event_id=event_id
            )
        sender = Sender(receiver.webhook, LOOPBACK, metrics)
        sent = []
        while await waiting(metrics):
            await due_now(metrics)
            while await sender.send_next():
                pass
            sent.append([_delivery(request) for request in receiver.requests])
            receiver.requests.clear()
            failing = failing[1:]
    assert sent == [["begin", "other"], ["begin", "end"], ["end", "begin again"]]


async def test_history_is_not_sent_and_too_many_are_dropped(
    metrics: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "MAX_WAITING", 3)
    hook = Webhook("oncall", "http://127.0.0.1/")
    now = datetime.now(UTC)
    await enqueue(metrics, hook, occurred_at=now - timedelta(hours=2))
    assert await waiting(metrics) == []
    for number in range(5):
        await enqueue(metrics, hook, occurred_at=now, event_id=f"event-{number}")
    assert await waiting(metrics) == [("oncall", 0)] * 3
