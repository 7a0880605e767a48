"""Writes OpenLineage events of runs, in the transaction that handles what they tell.

START when every pod is seen alive, COMPLETE, FAIL or ABORT at the end, with the checkpoints that
are there then. In between RUNNING: when a run goes on from a checkpoint, says which data it uses,
and every ten minutes in which it saved one. A checkpoint that is verified after the end is sent
as OTHER.

Jobs are known from their `job.queued`: those queued before an endpoint was configured are not told.
"""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoints import (
    CheckpointCommitted,
    CheckpointDeleted,
    CheckpointRestored,
)
from drivetrain_schemas.descriptions import DataUsed, RunDescribed
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import JobCancelled, JobFailed, JobQueued, JobStopped, JobSucceeded
from drivetrain_schemas.openlineage import (
    Kind,
    LineageCheckpoint,
    LineageRun,
    end_of,
    run_event,
)
from drivetrain_schemas.redaction import redacted
from drivetrain_schemas.runs import (
    RunCancelled,
    RunFailed,
    RunInterrupted,
    RunLost,
    RunStarted,
    RunStarting,
    RunStopped,
    RunSucceeded,
)
from services.metrics.core.lineage import Endpoint, lineage_job
from services.metrics.lineage import store
from services.runtime.processing import Handler, HandlerTable
from services.runtime.transaction import Tx

MAX_CHECKPOINTS = 100  # of one run
RUNNING_SECONDS = 600.0
# Older events are history, which a new endpoint does not get.
MAX_AGE = timedelta(days=7)
_ENDS = (RunSucceeded, RunFailed, RunLost, RunCancelled, RunInterrupted, RunStopped)
_JOB_ENDS = (JobSucceeded, JobFailed, JobCancelled, JobStopped)


def handlers(endpoints: Sequence[Endpoint], others: HandlerTable) -> HandlerTable:
    """What this does, after what `others` do with the same events. Without endpoints too: what this
    service may read does not depend on a file, and what was begun with one ends."""
    writer = _Writer(endpoints)
    ours: dict[type[Payload], Handler] = {
        JobQueued: writer.on_job_queued,
        RunStarting: writer.on_starting,
        RunStarted: writer.on_started,
        RunDescribed: writer.on_described,
        CheckpointRestored: writer.on_restored,
        CheckpointCommitted: writer.on_committed,
        CheckpointDeleted: writer.on_deleted,
        **dict.fromkeys(_ENDS, writer.on_ended),
        **dict.fromkeys(_JOB_ENDS, writer.on_job_ended),
    }
    return {
        **others,
        **{kind: partial(_both, others.get(kind, _nothing), ours[kind]) for kind in ours},
    }


async def _nothing(tx: Tx, event: Event[Any]) -> None:
    pass


async def _both(first: Handler, second: Handler, tx: Tx, event: Event[Any]) -> None:
    await first(tx, event)
    await second(tx, event)


class _Writer:
    """One handler per event."""

    def __init__(self, endpoints: Sequence[Endpoint]) -> None:
        self._endpoints = endpoints

    async def on_job_queued(self, tx: Tx, event: Event[JobQueued]) -> None:
        if self._wanting(event.tenant_id):
            await store.put_job(tx.connection, lineage_job(event.tenant_id, event.payload))

    async def on_job_ended(self, tx: Tx, event: Event[Any]) -> None:
        await store.finish_job(tx.connection, event.payload.job_id)

    async def on_starting(self, tx: Tx, event: Event[RunStarting]) -> None:
        if self._wanting(event.tenant_id):
            await store.begin_run(tx.connection, event.payload.run_id, event.occurred_at)

    async def on_started(self, tx: Tx, event: Event[RunStarted]) -> None:
        if not self._wanting(event.tenant_id):
            return
        payload = event.payload
        await store.begin_run(tx.connection, payload.run_id, payload.started_at)
        run = await store.lock_run(tx.connection, payload.run_id)
        if run is not None and not run.is_told:
            await self._tell(tx, event, run, "START", payload.started_at)

    async def on_ended(self, tx: Tx, event: Event[Any]) -> None:
        payload = event.payload
        run = await store.lock_run(tx.connection, payload.run_id)
        if run is None or run.has_ended:
            return
        await store.end_run(tx.connection, run.run_id)
        if not run.is_told:
            await self._tell(tx, event, run, "START", run.began_at)
        state = event.type.removeprefix("run.")
        await self._tell(tx, event, run, end_of(state), payload.ended_at)

    async def on_restored(self, tx: Tx, event: Event[CheckpointRestored]) -> None:
        payload, run_id = event.payload, event.payload.resumed_by_run_id
        if not self._is_new(event):
            return
        one = LineageCheckpoint(payload.checkpoint_id, payload.step)
        await store.put_checkpoint(
            tx.connection, run_id, one, is_input=True, at_most=MAX_CHECKPOINTS
        )
        await self._tell_inputs(tx, event, run_id)

    async def on_described(self, tx: Tx, event: Event[RunDescribed]) -> None:
        run_id, data = event.payload.run_id, event.payload.surroundings.data
        if not data or not self._is_new(event):
            return
        told = json.dumps([{**one.model_dump(), "uri": redacted(one.uri)} for one in data])
        await store.put_data(tx.connection, run_id, event.occurred_at, told)
        await self._tell_inputs(tx, event, run_id)

    async def _tell_inputs(self, tx: Tx, event: Event[Any], run_id: str) -> None:
        run = await store.lock_run(tx.connection, run_id)
        if run is not None and run.is_told:
            kind: Kind = "OTHER" if run.has_ended else "RUNNING"
            await self._tell(tx, event, run, kind, event.occurred_at)

    async def on_committed(self, tx: Tx, event: Event[CheckpointCommitted]) -> None:
        payload = event.payload
        if not self._is_new(event):
            return
        one = LineageCheckpoint(
            payload.checkpoint_id, payload.step, payload.size_bytes, payload.num_shards
        )
        run_id = payload.run_id
        await store.put_checkpoint(
            tx.connection, run_id, one, is_input=False, at_most=MAX_CHECKPOINTS
        )
        run = await store.lock_run(tx.connection, run_id)
        if run is None or not run.is_told:
            return  # its START tells none, its end tells this one
        if run.has_ended:
            await self._tell(tx, event, run, "OTHER", event.occurred_at)
        elif await store.is_due(tx.connection, run_id, RUNNING_SECONDS):
            await self._tell(tx, event, run, "RUNNING", event.occurred_at)

    async def on_deleted(self, tx: Tx, event: Event[CheckpointDeleted]) -> None:
        payload = event.payload
        await store.drop_checkpoint(tx.connection, payload.run_id, payload.checkpoint_id)

    def _wanting(self, tenant_id: str) -> list[Endpoint]:
        return [one for one in self._endpoints if not one.tenants or tenant_id in one.tenants]

    def _is_new(self, event: Event[Any]) -> bool:
        return bool(self._wanting(event.tenant_id)) and not _is_history(event)

    async def _tell(
        self, tx: Tx, event: Event[Any], run: store.RunRow, kind: Kind, at: datetime
    ) -> None:
        """The run is locked, so its events are in order."""
        if kind == "START":
            await store.set_told(tx.connection, run.run_id)
        job = await store.job(tx.connection, event.payload.job_id)
        if job is None or _is_history(event):
            return
        told = await _run(tx, run, kind, _error(event.payload))
        body = json.dumps(run_event(job, told, kind, at.isoformat()))
        for endpoint in self._wanting(event.tenant_id):
            await store.append(tx.connection, endpoint.queue, f"{event.event_id}/{kind}", body)


async def _run(tx: Tx, run: store.RunRow, kind: Kind, error: str | None) -> LineageRun:
    restored = await store.checkpoints(tx.connection, run.run_id, is_input=True)
    saved: Sequence[LineageCheckpoint] = ()
    if kind != "START":
        saved = await store.checkpoints(tx.connection, run.run_id, is_input=False)
    data = [DataUsed(**one) for one in json.loads(run.data)]
    return LineageRun(run.run_id, restored, saved, error, data)


def _error(payload: Payload) -> str | None:
    if isinstance(payload, RunFailed):
        return payload.detail or f"exit code {payload.exit_code}"
    return payload.detail if isinstance(payload, RunLost) else None


def _is_history(event: Event[Any]) -> bool:
    return event.occurred_at < datetime.now(UTC) - MAX_AGE
