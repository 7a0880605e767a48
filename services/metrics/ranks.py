"""Samples and windows of ranks that their run cannot have are left out (`core/ranks.py`)."""

from collections.abc import Collection, Mapping, Sequence

import asyncpg

from drivetrain_schemas.allocations import AllocationGranted
from drivetrain_schemas.envelope import Event
from services.metrics import alerts, store
from services.metrics.core.ranks import RANKS_OF_SLOT, num_ranks
from services.metrics.instruments import LEFT_OUT
from services.metrics.messages import SampleBatch
from services.metrics.quotas import Divided
from services.runtime.transaction import Tx


async def on_slots_granted(tx: Tx, event: Event[AllocationGranted]) -> None:
    granted = event.payload
    await store.lock_run(
        tx.connection, granted.run_id, granted.job_id, event.tenant_id, granted.attempt
    )
    await tx.connection.execute(
        "update runs set num_slots = $2 where run_id = $1", granted.run_id, len(granted.slots)
    )


async def of_runs(connection: asyncpg.Connection, run_ids: Collection[str]) -> Mapping[str, int]:
    """The number of ranks that each of these runs can have."""
    rows = await connection.fetch(
        "select run_id, num_slots from runs where run_id = any($1)", sorted(run_ids)
    )
    known = {row["run_id"]: row["num_slots"] for row in rows}
    return {run_id: num_ranks(known.get(run_id)) for run_id in run_ids}


async def divide(tx: Tx, batches: list[SampleBatch]) -> Divided[SampleBatch]:
    """The batches of ranks that there can be, and the others."""
    some = {batch.key.run_id for batch in batches if batch.key.rank >= RANKS_OF_SLOT}
    if not some:
        return Divided(batches, [])
    of_run = await of_runs(tx.connection, some)
    divided: Divided[SampleBatch] = Divided([], [])
    for batch in batches:
        is_possible = batch.key.rank < of_run.get(batch.key.run_id, RANKS_OF_SLOT)
        (divided.admitted if is_possible else divided.beyond).append(batch)
    return divided


async def leave_out(tx: Tx, batches: Sequence[SampleBatch]) -> None:
    """Count the samples of ranks that there cannot be, and say so once per run."""
    num_samples: dict[str, int] = {}
    for batch in batches:
        of_batch = sum(len(steps) for steps, _ in batch.columns.values())
        num_samples[batch.job_id] = num_samples.get(batch.job_id, 0) + of_batch
    reasons = ((batch, _reason(batch)) for batch in batches)
    await alerts.raise_left_out(tx, reasons, about="ranks")
    for job_id in sorted(num_samples):
        await store.add_left_out(tx.connection, job_id, num_samples[job_id])
    total = sum(num_samples.values())
    tx.after_commit(lambda: LEFT_OUT.labels("ranks").inc(total))


def _reason(batch: SampleBatch) -> str:
    return (
        f"rank {batch.key.rank} is more than the run can have with its slots: samples of such "
        "ranks are left out; log under the rank in the environment variable RANK"
    )
