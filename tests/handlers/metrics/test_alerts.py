"""Stalls and dropped samples, from heartbeats and the events of runs to alerts."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest_asyncio
from pydantic import SecretStr

from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import pod_id_for, run_id_for
from drivetrain_schemas.jobs import JobQueued, JobSpec
from drivetrain_schemas.metrics import AlertCleared, AlertRaised, RunWarned
from drivetrain_schemas.reports import PodWarned
from drivetrain_schemas.runs import RunFailed, RunHeard, RunStarted, RunSuspected
from services.metrics.handlers import HANDLERS, take_reports
from services.metrics.store import MAX_ALERTS_OF_RUN, MAX_WARNINGS_OF_RUN
from services.runtime.database import Database
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.events import handle, handle_batch, make_event
from tests.handlers.metrics.builders import JOB, make_heartbeat

AT = datetime(2026, 1, 1, tzinfo=UTC)
RUN: dict[str, Any] = {"job_id": JOB, "run_id": run_id_for(JOB, 1), "attempt": 1, "fence": 1}


@pytest_asyncio.fixture(loop_scope="session")
async def metrics(database: OpenDatabase) -> Database:
    return await database("metrics")


TAKE_REPORTS = partial(take_reports, RunTokens(None))


async def start(metrics: Database) -> None:
    await handle(metrics, HANDLERS, make_event(RunStarted(**RUN, started_at=AT)))


async def beat(metrics: Database, seconds: int, **fields: Any) -> list[Payload]:
    """Heartbeats over `seconds`, one every five. Returns what they led to."""
    emitted = []
    for _ in range(seconds // 5):
        async with metrics.transaction() as tx:  # five seconds pass
            await tx.connection.execute(
                "update runs set heard_at = heard_at - 5, moved_at = moved_at - 5"
            )
        emitted += await handle_batch(metrics, TAKE_REPORTS, make_event(make_heartbeat(**fields)))
    return emitted


def reported(events: list[Payload]) -> list[tuple[str, str]]:
    return [(event.kind.type, event.alert) for event in events]  # type: ignore[attr-defined]


async def test_a_running_run_that_makes_no_step_is_alerted_once(metrics: Database) -> None:
    await start(metrics)
    assert await beat(metrics, 60, step=7) == []
    emitted = await beat(metrics, 30, step=7)
    assert reported(emitted) == [("alert.raised", "stalled")]
    (alert,) = emitted
    assert isinstance(alert, AlertRaised)
    assert (alert.step, alert.series) == (7, None)


async def test_a_job_says_how_long_its_steps_may_take(metrics: Database) -> None:
    spec = JobSpec.model_validate(
        {"name": "slow", "command": ["true"], "alerts": {"stalled_minutes": 10}}
    )
    queued = JobQueued(job_id=RUN["job_id"], request_id="r", spec=spec, queued_at=AT)
    await handle(metrics, HANDLERS, make_event(queued))
    await start(metrics)
    assert await beat(metrics, 590, step=7) == []
    (alert,) = await beat(metrics, 30, step=7)
    assert isinstance(alert, AlertRaised)
    assert alert.detail == "no step for 600 s, though heartbeats arrive"


async def test_an_evaluation_is_no_stall_and_one_that_hangs_is_found(metrics: Database) -> None:
    """100 s with a line now and then; then silence, for as long as its phase may be silent."""
    await start(metrics)
    await beat(metrics, 5, step=7)
    assert await beat(metrics, 100, step=7, doing="evaluation", quiet_seconds=4.0) == []
    assert await beat(metrics, 590, step=7, doing="evaluation", quiet_seconds=1e6) == []
    assert reported(await beat(metrics, 15, step=7, doing="evaluation", quiet_seconds=1e6)) == [
        ("alert.raised", "stalled")
    ]
    assert reported(await beat(metrics, 5, step=7, quiet_seconds=0.0)) == [
        ("alert.cleared", "stalled")
    ]


async def test_samples_that_did_not_fit_and_those_that_were_refused_are_told_apart(
    metrics: Database,
) -> None:
    await start(metrics)
    (refused,) = await beat(metrics, 5, step=1, num_refused_samples=120)
    assert isinstance(refused, AlertRaised)
    assert refused.alert == "samples_dropped"
    assert "120 samples were left out: their values are not numbers" in refused.detail
    (dropped,) = await beat(metrics, 5, step=2, num_refused_samples=130, num_dropped_samples=7)
    assert isinstance(dropped, AlertRaised)
    assert dropped.detail == "7 samples did not fit the pod's buffer; training was not delayed"
    assert await beat(metrics, 5, step=3, num_refused_samples=140, num_dropped_samples=9) == []


async def test_the_alert_is_cleared_by_a_step_and_can_come_again(metrics: Database) -> None:
    await start(metrics)
    await beat(metrics, 90, step=7)
    assert reported(await beat(metrics, 5, step=8)) == [("alert.cleared", "stalled")]
    assert reported(await beat(metrics, 300, step=8)) == [("alert.raised", "stalled")]


async def test_the_end_of_the_run_clears_its_alert_and_late_heartbeats_raise_none(
    metrics: Database,
) -> None:
    await start(metrics)
    await beat(metrics, 90, step=7)
    ended = RunFailed(**RUN, exit_code=1, last_log="", ended_at=AT)
    emitted = await handle(metrics, HANDLERS, make_event(ended))
    assert reported(emitted) == [("alert.cleared", "stalled")]
    assert isinstance(emitted[0], AlertCleared)
    assert await beat(metrics, 90, step=7) == []


async def test_an_ended_run_stays_ended(metrics: Database) -> None:
    ended = RunFailed(**RUN, exit_code=1, last_log="", ended_at=AT)
    await handle(metrics, HANDLERS, make_event(ended))
    await start(metrics)
    assert await beat(metrics, 90, step=7) == []


async def test_only_running_runs_are_alerted(metrics: Database) -> None:
    assert await beat(metrics, 90, step=7) == []  # nothing is known of its state yet
    suspected = RunSuspected(**RUN, last_heard_at=AT)
    await handle(metrics, HANDLERS, make_event(suspected))
    assert await beat(metrics, 5, step=7) == []
    await handle(metrics, HANDLERS, make_event(RunHeard(**RUN)))
    assert reported(await beat(metrics, 5, step=7)) == [("alert.raised", "stalled")]


async def test_dropped_samples_are_alerted_once_per_run(metrics: Database) -> None:
    await start(metrics)
    assert reported(await beat(metrics, 5, num_dropped_samples=3)) == [
        ("alert.raised", "samples_dropped")
    ]
    assert await beat(metrics, 10, num_dropped_samples=900, step=2) == []


async def test_other_reports_are_left_alone(metrics: Database) -> None:
    emitted = await handle_batch(metrics, TAKE_REPORTS, make_event(RunHeard(**RUN)))
    assert emitted == []


def warned(detail: str, **changes: Any) -> PodWarned:
    return PodWarned(
        **{
            **RUN,
            "tenant_id": "default",
            "pod_id": pod_id_for(JOB, 1, 0),
            "warning": "no_resume",
            "detail": detail,
            **changes,
        }
    )


async def test_a_warning_is_emitted_once_a_run_and_no_run_has_many(metrics: Database) -> None:
    await start(metrics)
    first = await handle_batch(
        metrics, TAKE_REPORTS, *(make_event(warned(text)) for text in ("a", "b", "a"))
    )
    again = await handle_batch(metrics, TAKE_REPORTS, make_event(warned("b", warning="other")))
    many = [make_event(warned(f"text {number}")) for number in range(50)]
    emitted = [*first, *again, *await handle_batch(metrics, TAKE_REPORTS, *many)]
    found = [event for event in emitted if isinstance(event, RunWarned)]
    assert [event.number for event in found] == list(range(1, MAX_WARNINGS_OF_RUN + 1))
    assert [(event.warning, event.detail) for event in found[:3]] == [
        ("no_resume", "a"), ("no_resume", "b"), ("no_resume", "text 0")
    ]  # fmt: skip


async def test_alerts_of_a_script_are_raised_once_each_and_end_with_the_run(
    metrics: Database,
) -> None:
    """A run has a bounded number, whatever its pods send."""
    await start(metrics)
    texts = [f"number {number}" for number in (0, *range(MAX_ALERTS_OF_RUN + 3))]
    records = [make_event(warned(text, warning="alert")) for text in texts]
    emitted = await handle_batch(metrics, TAKE_REPORTS, *records)
    emitted += await handle_batch(metrics, TAKE_REPORTS, *records)
    told = [event for event in emitted if isinstance(event, AlertRaised)]
    assert [event.detail for event in told] == texts[1 : MAX_ALERTS_OF_RUN + 1]
    assert {event.alert for event in told} == {"script"}
    assert len(emitted) == len(told), "no warnings"
    ended = RunFailed(**RUN, exit_code=1, last_log="", ended_at=AT)
    assert reported(await handle(metrics, HANDLERS, make_event(ended))) == [
        ("alert.cleared", "script")
    ]


async def test_a_warning_without_the_token_of_its_run_is_ignored(metrics: Database) -> None:
    tokens = RunTokens(SecretStr("k" * 32))
    take = partial(take_reports, tokens)
    event = make_event(warned("x"))
    forged = replace(event, run_token=tokens.of(run_id_for(JOB, 2), 1))
    genuine = replace(event, run_token=tokens.of(RUN["run_id"], 1))
    assert await handle_batch(metrics, take, forged, make_event(warned("x"))) == []
    assert len(await handle_batch(metrics, take, genuine)) == 1
