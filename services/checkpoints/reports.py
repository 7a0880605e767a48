"""What the checkpoints service does with the reports of pods, in batches.

A report is a hint, and may be invented: it leads to a look into the object store, or to one event
per run and cause. So what is stored does not grow with the number of reports, and a batch may be
handled twice. Keys in a report are looked up only under the job of its run.
"""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TypeGuard

from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoints import CheckpointWriteFailed, CheckpointWritten, RunResumed
from drivetrain_schemas.envelope import InvalidEvent
from drivetrain_schemas.ids import checkpoint_id_for
from drivetrain_schemas.reports import PodHeartbeat
from services.checkpoints import saving, store, store_checkpoints, store_intents
from services.checkpoints.core.location import Location, locate, mentioned
from services.checkpoints.instruments import (
    BLOCKED_SECONDS,
    REFUSED_HINTS,
    RESTORE_SECONDS,
    SAVE_SECONDS,
)
from services.checkpoints.store import Run
from services.runtime import logs
from services.runtime.bus import Record
from services.runtime.parking import InvalidRecord
from services.runtime.processing import BatchHandler
from services.runtime.run_tokens import RunTokens
from services.runtime.transaction import Tx

log = logs.get()

MAX_REJECTED = 100


def report_handler(tokens: RunTokens, wake: Callable[[], None]) -> BatchHandler:
    """`wake` is called once there is something to do."""

    async def take(tx: Tx, records: Sequence[Record]) -> Sequence[InvalidRecord]:
        reports = [report for record in records if (report := _read(tokens, record)) is not None]
        await _note_steps(tx, [one for one in reports if isinstance(one, PodHeartbeat)])
        await _look(tx, [one for one in reports if isinstance(one, CheckpointWritten)])
        for resumed in {one.run_id: one for one in reports if isinstance(one, RunResumed)}.values():
            await _note_resumed(tx, resumed)
        await _note_failures(tx, [one for one in reports if isinstance(one, CheckpointWriteFailed)])
        if not all(isinstance(one, PodHeartbeat) for one in reports):
            tx.after_commit(wake)
        return ()  # the scheduler parks the unreadable records of this topic

    return take


def _read(tokens: RunTokens, record: Record) -> Payload | None:
    try:
        event = tokens.read(record)
    except InvalidEvent:
        return None
    return None if event is None else event.payload


async def _note_steps(tx: Tx, heartbeats: Sequence[PodHeartbeat]) -> None:
    steps: dict[tuple[str, int], int] = {}
    for beat in heartbeats:
        if beat.step is not None:
            run = (beat.run_id, beat.fence)
            steps[run] = max(beat.step, steps.get(run, 0))
    if steps:
        await store.set_steps(tx.connection, steps)


async def _look(tx: Tx, written: Sequence[CheckpointWritten]) -> None:
    """List the checkpoints of these jobs now; an unknown job is listed once it is granted."""
    located = [
        one
        for one in written
        if _is_located(locate(one.tenant_id, one.job_id, one.manifest_key), one)
    ]
    await _list_now(tx, {one.job_id for one in located})
    for one in located:
        tx.after_commit(partial(SAVE_SECONDS.observe, one.save_seconds))
        tx.after_commit(partial(BLOCKED_SECONDS.observe, one.blocked_seconds))


async def _list_now(tx: Tx, job_ids: Collection[str]) -> None:
    for job_id in await store.known_jobs(tx.connection, job_ids):
        await store_intents.want_listing(tx.connection, job_id)


async def _note_resumed(tx: Tx, resumed: RunResumed) -> None:
    """Read again what the run rejected; announce what it resumed from."""
    for text in resumed.rejected[:MAX_REJECTED]:
        named = mentioned(resumed.tenant_id, resumed.job_id, text)
        if not _is_located(named, resumed):
            continue
        key = named.manifest_key
        known = await store_checkpoints.find(tx.connection, resumed.job_id, checkpoint_id_for(key))
        if known is None:
            await _list_now(tx, {resumed.job_id})
        else:
            await store_intents.want(
                tx.connection, "verify", resumed.job_id, key, {"is_doubted": True}
            )
    if resumed.manifest_key is None:
        return
    location = locate(resumed.tenant_id, resumed.job_id, resumed.manifest_key)
    if _is_located(location, resumed):
        tx.after_commit(partial(RESTORE_SECONDS.observe, resumed.load_seconds))
        facts = resumed.model_dump(mode="json")
        await store_intents.want(tx.connection, "restore", resumed.job_id, resumed.run_id, facts)


async def _note_failures(tx: Tx, failures: Sequence[CheckpointWriteFailed]) -> None:
    """Ranks could not save; this is believed of their job's newest live run only."""
    by_job: dict[str, list[CheckpointWriteFailed]] = {}
    for failed in failures:
        by_job.setdefault(failed.job_id, []).append(failed)
    for job_id in await store.known_jobs(tx.connection, by_job.keys()):
        job = await store.lock_job(tx.connection, job_id)
        first_of_cause = {(one.run_id, one.reason): one for one in reversed(by_job[job_id])}
        for failed in reversed(first_of_cause.values()):
            run = Run(failed.run_id, job_id, failed.attempt, failed.fence)
            await saving.note_failure(tx, job, run, failed.reason, failed.detail, failed.step)


def _is_located(
    location: Location | None, report: CheckpointWritten | RunResumed
) -> TypeGuard[Location]:
    """A text that does not name a checkpoint of this job is ignored."""
    if location is None:
        REFUSED_HINTS.inc()
        log.warning(
            "report names no checkpoint of its job", type=report.kind.type, run_id=report.run_id
        )
    return location is not None
