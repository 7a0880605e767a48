"""Rungs of trials, from samples and the events of runs to `trial.measured`."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest_asyncio

from drivetrain_schemas.allocations import AllocationId
from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.jobs import JobQueued, JobSpec, JobStopped, TrialOf
from drivetrain_schemas.metrics import SamplesRecorded, TrialMeasured
from drivetrain_schemas.runs import RunInterrupted, RunStarting, RunSucceeded
from services.metrics import streams
from services.metrics.handlers import HANDLERS
from services.metrics.retention import KEEP_TRIALS, RULES
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.events import handle, handle_batch, make_event
from tests.handlers.metrics.builders import JOB, make_samples

AT = datetime(2026, 1, 1, tzinfo=UTC)
TRIAL = TrialOf(study_id="study_" + "s" * 26, number=7, rungs=(10, 30))
SPEC = JobSpec.model_validate(
    {"name": "t", "command": ["true"], "metric": {"name": "loss", "goal": "minimize"}}
)
QUEUED = make_event(JobQueued(job_id=JOB, request_id="r", spec=SPEC, trial=TRIAL, queued_at=AT))


def of_run(attempt: int = 1) -> dict[str, Any]:
    run_id = run_id_for(JOB, attempt)
    return {"job_id": JOB, "run_id": run_id, "attempt": attempt, "fence": attempt}


def starting(attempt: int = 1) -> RunStarting:
    allocation: AllocationId = "alloc_" + JOB.removeprefix("job_") + f"_{attempt}"
    return RunStarting(**of_run(attempt), allocation_id=allocation, num_pods=1)


@pytest_asyncio.fixture(loop_scope="session")
async def metrics(database: OpenDatabase) -> Database:
    opened = await database("metrics")
    await handle(opened, HANDLERS, QUEUED, make_event(starting()))
    return opened


async def take(metrics: Database, *batches: SamplesRecorded) -> list[tuple[int, float | None]]:
    """The rungs that were announced, with their values."""
    handler = partial(streams.take_samples, RunTokens(None))
    return told(await handle_batch(metrics, handler, *map(make_event, batches)))


async def tell(metrics: Database, *payloads: Any) -> list[tuple[int, float | None]]:
    return told(await handle(metrics, HANDLERS, *map(make_event, payloads)))


def told(sent: list[Any]) -> list[tuple[int, float | None]]:
    return [(each.step, each.value) for each in sent if isinstance(each, TrialMeasured)]


def loss(*steps: int, batch: int, **fields: Any) -> SamplesRecorded:
    samples = {"loss": {step: step / 10 for step in steps}}
    return make_samples(samples, batch=batch, session=f"s{fields.get('attempt', 1)}", **fields)


async def test_each_rung_is_announced_once_with_the_value_up_to_it(metrics: Database) -> None:
    assert await take(metrics, loss(4, 8, batch=0)) == []
    handler = partial(streams.take_samples, RunTokens(None))
    batch = make_event(loss(12, 16, batch=1))
    (measured,) = await handle_batch(metrics, handler, batch)
    assert isinstance(measured, TrialMeasured)
    assert measured.model_dump() == {
        "study_id": TRIAL.study_id,
        "number": 7,
        "job_id": JOB,
        "run_id": run_id_for(JOB, 1),
        "attempt": 1,
        "step": 10,
        "value": 0.8,
        "value_step": 8,
    }
    assert await handle_batch(metrics, handler, batch) == []  # sent again
    assert await take(metrics, loss(30, batch=2)) == [(30, 3.0)]
    assert await take(metrics, loss(40, batch=3)) == []


async def test_events_told_again_change_nothing(metrics: Database) -> None:
    assert await take(metrics, loss(10, batch=0)) == [(10, 1.0)]
    again = make_event(QUEUED.payload)
    await handle(metrics, HANDLERS, again, QUEUED)
    assert await take(metrics, loss(11, batch=1)) == []


async def test_a_resumed_attempt_repeats_no_rung(metrics: Database) -> None:
    assert await take(metrics, loss(10, batch=0)) == [(10, 1.0)]
    ended = RunInterrupted(**of_run(), ended_at=AT)
    assert await tell(metrics, ended, starting(2)) == []
    assert await take(metrics, loss(9, 10, 25, batch=0, attempt=2)) == []
    assert await take(metrics, loss(31, batch=1, attempt=2)) == [(30, 2.5)]


async def test_other_ranks_do_not_reach_it(metrics: Database) -> None:
    assert await take(metrics, loss(10, 90, batch=0, rank=1)) == []
    assert await take(metrics, loss(10, batch=0)) == [(10, 1.0)]


async def test_a_value_that_is_not_finite_is_none(metrics: Database) -> None:
    assert await take(metrics, make_samples({"loss": {10: "nan"}})) == [(10, None)]


async def test_a_metric_that_is_never_logged(metrics: Database) -> None:
    assert await take(metrics, make_samples({"other": {30: 1.0}}, batch=0)) == []
    assert await take(metrics, make_samples({"other": {31: 1.0}}, batch=1)) == [(10, None)]
    assert await tell(metrics, RunSucceeded(**of_run(), ended_at=AT)) == [(30, None)]


async def test_a_run_that_ends_after_a_rung_has_its_last_value_up_to_it(metrics: Database) -> None:
    batch = make_samples({"loss": {4: 0.4}, "other": {12: 1.0}})
    assert await take(metrics, batch) == []
    assert await tell(metrics, RunSucceeded(**of_run(), ended_at=AT)) == [(10, 0.4)]


async def test_samples_that_come_after_the_end_of_their_run(metrics: Database) -> None:
    assert await tell(metrics, RunSucceeded(**of_run(), ended_at=AT)) == []
    batch = make_samples({"loss": {4: 0.4}, "other": {12: 1.0}})
    assert await take(metrics, batch) == [(10, 0.4)]


async def test_one_batch_may_reach_several(metrics: Database) -> None:
    assert await take(metrics, loss(40, batch=0)) == [(10, 4.0), (30, 4.0)]


async def test_the_trial_of_a_finished_job_is_forgotten_some_time_later(metrics: Database) -> None:
    stopped = JobStopped(job_id=JOB, reason="", finished_at=AT, trial=TRIAL)
    await tell(metrics, RunInterrupted(**of_run(), ended_at=AT), stopped)
    (rule,) = [rule for rule in RULES if rule.table == "trials"]
    async with metrics.connection() as connection:
        for age in (KEEP_TRIALS / 2, KEEP_TRIALS * 2):
            await connection.execute("update trials set finished_at = now() - $1::interval", age)
            await connection.execute(rule.statement, KEEP_TRIALS, 10)
            left = await connection.fetchval("select count(*) from trials")
            assert left == (1 if age < KEEP_TRIALS else 0)
