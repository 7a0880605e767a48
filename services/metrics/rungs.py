"""Announces the rungs that trials reach: one `trial.measured` for each trial and rung.

A trial's row is locked while its samples are stored and while its run ends, so whichever comes last
sees the other. Most batches are of no trial or reach no rung: they cost one statement for all.
"""

from collections.abc import Sequence

from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import JobCancelled, JobFailed, JobQueued, JobStopped, JobSucceeded
from drivetrain_schemas.metrics import TrialMeasured
from drivetrain_schemas.system_series import is_system_series
from services.metrics import store_trials
from services.metrics.core.rungs import Reached, Trial, finite, rungs_reached, value_at
from services.metrics.instruments import RUNGS
from services.metrics.messages import SampleBatch
from services.metrics.store import RunRow
from services.runtime import logs
from services.runtime.transaction import Tx

log = logs.get()

JobFinished = JobSucceeded | JobFailed | JobCancelled | JobStopped


async def on_job_queued(tx: Tx, event: Event[JobQueued]) -> None:
    """Watch the job, where a search judges it."""
    queued = event.payload
    trial, metric = queued.trial, queued.spec.metric
    if trial is None or not trial.rungs or metric is None:
        return
    watched = Trial(
        job_id=queued.job_id,
        tenant_id=event.tenant_id,
        study_id=trial.study_id,
        number=trial.number,
        metric=metric.name,
        rungs=trial.rungs,
    )
    await store_trials.insert(tx.connection, watched)


async def on_job_finished(tx: Tx, event: Event[JobFinished]) -> None:
    if event.payload.trial is not None and event.payload.trial.rungs:
        await store_trials.set_finished(tx.connection, event.payload.job_id)


async def run_moved(tx: Tx, run: RunRow, is_live: bool) -> None:
    """A run begins, or has ended: then what it has passed is announced."""
    trials = await store_trials.lock(tx.connection, [run.job_id])
    if (trial := trials.get(run.job_id)) is None or trial.is_ended is not is_live:
        return
    await store_trials.set_ended(tx.connection, run.job_id, not is_live)
    if is_live:
        return
    step = await store_trials.last_step(tx.connection, run.job_id)
    rungs = tuple(rung for rung in trial.rungs[trial.num_measured :] if rung <= step)
    await _announce(tx, trial, run.run_id, run.attempt, rungs)


async def take(tx: Tx, batches: Sequence[SampleBatch]) -> None:
    """These batches are stored: announce the rungs that they reach."""
    of_rank_0 = [batch for batch in batches if batch.key.rank == 0]
    if not of_rank_0:
        return
    trials = await store_trials.lock(tx.connection, {batch.job_id for batch in of_rank_0})
    if not trials:
        return
    of_jobs: dict[str, list[SampleBatch]] = {job_id: [] for job_id in trials}
    for batch in of_rank_0:
        if batch.job_id in of_jobs:
            of_jobs[batch.job_id].append(batch)
    for job_id, batches_of_job in of_jobs.items():
        newest = batches_of_job[-1]  # of the newest run among them
        rungs = rungs_reached(trials[job_id], _reached(trials[job_id], batches_of_job))
        await _announce(tx, trials[job_id], newest.key.run_id, newest.attempt, rungs)


def _reached(trial: Trial, batches: Sequence[SampleBatch]) -> Reached:
    metric_step = step = -1
    for batch in batches:
        for name, (steps, _) in batch.columns.items():
            if is_system_series(name):
                continue  # its steps are times
            step = max(step, *steps, -1)
            if name == trial.metric:
                metric_step = max(metric_step, *steps, -1)
    return Reached(metric_step, step)


async def _announce(tx: Tx, trial: Trial, run_id: str, attempt: int, rungs: Sequence[int]) -> None:
    for rung in rungs:
        samples = await store_trials.samples_around(tx.connection, trial.job_id, trial.metric, rung)
        found = value_at(rung, samples)
        event = TrialMeasured(
            study_id=trial.study_id,
            number=trial.number,
            job_id=trial.job_id,
            run_id=run_id,
            attempt=attempt,
            step=rung,
            value=None if found is None else finite(found.value),
            value_step=None if found is None else found.step,
        )
        await tx.emit(event, tenant_id=trial.tenant_id)
        outcome = "no_value" if event.value is None else "value"
        tx.after_commit(RUNGS.labels(outcome).inc)
        log.info("trial measured", job_id=trial.job_id, step=rung, value=event.value)
    if rungs:
        await store_trials.add_measured(tx.connection, trial.job_id, len(rungs))
