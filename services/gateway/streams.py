"""Topics that are taken in batches: commands, reports (heartbeats) and parked records.

Idempotent by the records' own keys: a stub stays a stub, heartbeats fold to the same progress in
any order, a parked record has one id. What cannot be read is parked by the service that the topic
names for it, so it is passed over here.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import cast

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event, InvalidEvent
from drivetrain_schemas.ids import digest_id, job_id_for, study_id_for
from drivetrain_schemas.jobs import JobSubmit
from drivetrain_schemas.reports import PodHeartbeat
from drivetrain_schemas.studies import StudySubmit
from drivetrain_schemas.topics import (
    COMMANDS_JOBS,
    COMMANDS_STUDIES,
    REPORTS,
    TOPICS,
    Topic,
)
from services.gateway import store, store_catalogue
from services.gateway.core.progress import Beat, fold, merge
from services.gateway.core.storable import storable_text
from services.runtime.bus import Record
from services.runtime.parking import HEADER, Unfit
from services.runtime.processing import BatchHandler, read_event
from services.runtime.transaction import Tx

# What a 64-bit column holds; a pod may claim any number.
_MOST = 2**63 - 1


def projection_streams(
    announce: Callable[[str], None], wake: Callable[[], None]
) -> Mapping[Topic, BatchHandler]:
    """The batch handlers by topic; what they tell once committed is a hint to readers."""
    submitted, parked = partial(announce, "submitted"), partial(announce, "parked")
    return {
        COMMANDS_JOBS: _telling(on_commands, submitted),
        COMMANDS_STUDIES: _telling(on_commands, submitted),
        REPORTS: _telling(on_reports, wake),
        **{
            topic: _telling(on_parked, parked)
            for topic in TOPICS
            if topic.name.startswith("parked.")
        },
    }


def _telling(
    handler: Callable[[Tx, Sequence[Record]], Awaitable[None]], tell: Callable[[], None]
) -> BatchHandler:
    async def handle(tx: Tx, records: Sequence[Record]) -> Sequence[Unfit]:
        await handler(tx, records)
        tx.after_commit(tell)
        return ()

    return handle


async def on_commands(tx: Tx, records: Sequence[Record]) -> None:
    """A job or study that was asked for is there at once, as submitted."""
    for event in _events(records):
        submit = event.payload
        if isinstance(submit, JobSubmit):
            job_id = job_id_for(event.tenant_id, submit.request_id)
            await store.stub_submitted_job(tx.connection, cast(Event[JobSubmit], event), job_id)
        elif isinstance(submit, StudySubmit):
            study_id = study_id_for(event.tenant_id, submit.request_id)
            await store_catalogue.stub_submitted_study(
                tx.connection, cast(Event[StudySubmit], event), study_id
            )


async def on_reports(tx: Tx, records: Sequence[Record]) -> None:
    """Fold the heartbeats into each job's progress, in the order of the jobs' ids."""
    beats = [
        _beat(event.payload)
        for event in _events(records)
        if isinstance(event.payload, PodHeartbeat)
    ]
    for job_id, word in sorted(fold(beats).items()):
        before = await store.lock_progress(tx.connection, job_id)
        after = word if before is None else merge(before, word)
        if after != before:
            await store.upsert_progress(tx.connection, after)


async def on_parked(tx: Tx, records: Sequence[Record]) -> None:
    for record in records:
        facts = {
            name.removeprefix(HEADER): storable_text((value or b"").decode("utf-8", "replace"))
            for name, value in record.headers
            if name.startswith(HEADER)
        }
        service = facts.get("service") or record.topic.rpartition(".")[2]
        place = (record.topic, str(record.partition), str(record.offset))
        parked_id = facts.get("id") or f"parked_{digest_id('gateway', *place)}"
        facts["at"] = _time(facts.get("at"), record.timestamp_ms)
        await store_catalogue.insert_parked(tx.connection, parked_id, service, record, facts)


def _events(records: Sequence[Record]) -> Iterator[Event[Payload]]:
    for record in records:
        try:
            yield read_event(record)
        except InvalidEvent:
            continue


def _beat(heartbeat: PodHeartbeat) -> Beat:
    return Beat(
        job_id=heartbeat.job_id,
        run_id=heartbeat.run_id,
        attempt=heartbeat.attempt,
        fence=heartbeat.fence,
        phase=heartbeat.phase,
        step=heartbeat.step,
        max_steps=heartbeat.max_steps,
        epoch=None if heartbeat.epoch is None else max(0, min(heartbeat.epoch, _MOST)),
        num_dropped_samples=min(heartbeat.num_dropped_samples, _MOST),
        num_dropped_log_bytes=min(heartbeat.num_dropped_log_bytes, _MOST),
        sent_at=heartbeat.sent_at,
    )


def _time(text: str | None, timestamp_ms: int) -> str:
    """The time of parking as ISO text; where it is no time, the broker's."""
    try:
        moment = datetime.fromisoformat(text or "")
    except ValueError:
        moment = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()
