"""The rules of a job, from samples to alerts, in the order of what arrives."""

from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
import pytest_asyncio

from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.jobs import JobQueued, JobSpec
from drivetrain_schemas.metrics import AlertRaised
from drivetrain_schemas.runs import RunFailed, RunStarted
from services.metrics import store
from services.metrics.handlers import HANDLERS
from services.metrics.streams import take_samples
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.events import handle, handle_batch, make_event
from tests.handlers.metrics.builders import JOB, make_samples

AT = datetime(2026, 1, 1, tzinfo=UTC)
RUN: dict[str, Any] = {"job_id": JOB, "run_id": run_id_for(JOB, 1), "attempt": 1, "fence": 1}
RULES = [
    {"metric": "accuracy", "below": 0.5, "after_steps": 1000},
    {"metric": "tokens_per_second", "below": 900},
    {"metric": "accuracy", "above": 0.99},
]


@pytest_asyncio.fixture(loop_scope="session")
async def metrics(database: OpenDatabase) -> Database:
    opened = await database("metrics")
    fields = {"name": "t", "command": ["true"], "alerts": {"rules": RULES}}
    spec = JobSpec.model_validate(fields)
    queued = JobQueued(job_id=JOB, request_id="r", spec=spec, queued_at=AT)
    await handle(opened, HANDLERS, make_event(queued))
    await handle(opened, HANDLERS, make_event(RunStarted(**RUN, started_at=AT)))
    return opened


async def log(
    metrics: Database, batch: int, columns: dict[str, dict[int, Any]], **fields: Any
) -> list[AlertRaised]:
    event = make_event(make_samples(columns, batch=batch, **fields))
    told = await handle_batch(metrics, partial(take_samples, RunTokens(None)), event)
    return [one for one in told if isinstance(one, AlertRaised) and one.alert == "rule"]


async def test_the_first_value_beyond_a_rule_is_told_once_and_ends_with_the_run(
    metrics: Database,
) -> None:
    assert await log(metrics, 1, {"accuracy": {10: 0.1, 999: 0.2}}) == []
    (raised,) = await log(metrics, 2, {"accuracy": {1000: 0.5, 1001: 0.4375, 1002: 0.1}})
    assert (raised.series, raised.step) == ("accuracy", 1001)
    assert (raised.value, raised.threshold) == (0.4375, 0.5)
    assert raised.detail == "accuracy below 0.5 after step 1000: it is 0.4375 at step 1001"
    assert await log(metrics, 3, {"accuracy": {1003: 0.1}}) == []
    slow, good = await log(
        metrics, 4, {"accuracy": {1004: 0.995}, "tokens_per_second": {1004: 800}}
    )
    assert (slow.detail, good.detail) == (
        "tokens_per_second below 900: it is 800 at step 1004",
        "accuracy above 0.99: it is 0.995 at step 1004",
    )
    ended = RunFailed(**RUN, exit_code=1, last_log="", ended_at=AT)
    (over,) = await handle(metrics, HANDLERS, make_event(ended))
    assert (over.kind.type, over.alert) == ("alert.cleared", "rule")  # type: ignore[attr-defined]


async def test_what_stays_beyond_its_limit_is_written_once(
    metrics: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write for each batch of each such run would be most of what samples cost."""
    written = []
    raise_alert = store.raise_alert

    async def counted(connection: Any, run_id: str, alert: str, *about: str, again: bool) -> bool:
        written.append(alert)
        return await raise_alert(connection, run_id, alert, *about, again=again)

    monkeypatch.setattr(store, "raise_alert", counted)
    told = [
        await log(metrics, batch, {"accuracy": {2000 + batch: 0.1}, "tokens_per_second": {1: 1}})
        for batch in range(4)
    ]
    assert [len(alerts) for alerts in told] == [2, 0, 0, 0]
    assert written == ["rule", "rule"]


async def test_other_ranks_jobs_series_and_nan_break_no_rule(metrics: Database) -> None:
    assert await log(metrics, 1, {"accuracy": {2000: 0.1}}, rank=1) == []
    assert await log(metrics, 1, {"loss": {2000: 0.1}, "accuracy": {2000: "nan"}}) == []
    other = "job_" + "o" * 26
    assert await log(metrics, 1, {"accuracy": {2000: 0.1}}, job_id=other) == []


async def test_an_infinite_value_is_above_every_limit(metrics: Database) -> None:
    (raised,) = await log(metrics, 1, {"accuracy": {1: "inf"}})
    assert (raised.value, raised.detail) == (None, "accuracy above 0.99: it is inf at step 1")
