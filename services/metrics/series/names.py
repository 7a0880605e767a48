"""Which names of series a job may have: the first `MAX_SERIES_OF_JOB` that it logs.

A program that writes a step or a sample's id into the name would otherwise make a series of each.
Samples of further names are left out and counted, and an alert says so once per run. What pods say
of themselves (`system_series`, a closed list) does not count.
"""

from collections.abc import Collection, Sequence

from drivetrain_schemas.system_series import is_system_series
from services.metrics import alerts, store
from services.metrics.instruments import LEFT_OUT
from services.metrics.messages import SampleBatch
from services.runtime.transaction import Tx

MAX_SERIES_OF_JOB = 2000

Name = tuple[str, str]  # job, name of the series


async def admit(tx: Tx, batches: Sequence[SampleBatch]) -> Collection[Name]:
    """The names in these batches whose samples are stored."""
    # As they were logged, so that the first ones are kept.
    named = dict.fromkeys((one.job_id, name) for one in batches for name in one.columns)
    system = {one for one in named if is_system_series(one[1])}
    wanted = [one for one in named if one not in system]
    known = system | await store.known_names(tx.connection, wanted)
    missing: dict[str, list[str]] = {}
    for job_id, name in wanted:
        if (job_id, name) not in known:
            missing.setdefault(job_id, []).append(name)
    for job_id in sorted(missing):  # all transactions lock heads in this order
        room = MAX_SERIES_OF_JOB - await store.lock_names(tx.connection, job_id)
        added = missing[job_id][: max(0, room)]
        if added:
            await store.add_names(tx.connection, job_id, added)
            known.update((job_id, name) for name in added)
    return known


async def leave_out(tx: Tx, batches: Sequence[SampleBatch], known: Collection[Name]) -> None:
    """Count the samples of names that are not known, and say so once per run."""
    num_samples: dict[str, int] = {}
    reasons: list[tuple[SampleBatch, str]] = []
    for batch in batches:
        left_out = [name for name in batch.columns if (batch.job_id, name) not in known]
        if left_out:
            of_batch = sum(len(batch.columns[name][0]) for name in left_out)
            num_samples[batch.job_id] = num_samples.get(batch.job_id, 0) + of_batch
            reasons.append((batch, _reason(left_out[0])))
    await alerts.raise_left_out(tx, reasons, about="names")
    for job_id in sorted(num_samples):
        await store.add_left_out(tx.connection, job_id, num_samples[job_id])
    total = sum(num_samples.values())
    tx.after_commit(lambda: LEFT_OUT.labels("names").inc(total))


def _reason(name: str) -> str:
    return (
        f"a job may have {MAX_SERIES_OF_JOB:,} series; samples of further ones, such as "
        f"{name}, are left out: log numbers as values or steps, not in names"
    )
