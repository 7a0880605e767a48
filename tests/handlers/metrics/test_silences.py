"""Silences: what they hold back from webhooks, when it is sent, and which requests are refused."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio

from drivetrain_schemas.annotations import JobAnnotated
from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoints import (
    CheckpointingFailed,
    CheckpointingRecovered,
    SaveFailure,
)
from drivetrain_schemas.ids import job_id_for, run_id_for
from drivetrain_schemas.jobs import JobQueued, JobSpec
from drivetrain_schemas.metrics import AlertCleared, AlertKind, AlertRaised
from drivetrain_schemas.runs import RunFailed, RunStarted
from drivetrain_schemas.silences import (
    SilenceChanged,
    SilenceEnd,
    SilenceEnded,
    SilenceRequestRejected,
    SilenceSet,
    SilenceSpec,
    silence_id_for,
)
from services.metrics import store
from services.metrics.core.silences import Limits
from services.metrics.core.webhooks import Webhook
from services.metrics.handlers import HANDLERS
from services.metrics.silences import commands
from services.metrics.webhooks import sending as webhooks
from services.metrics.webhooks import store as store_deliveries
from services.metrics.webhooks.sending import Sender
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.events import handle, make_event
from tests.handlers.metrics.builders import JOB

RUN_ID = run_id_for(JOB, 1)
RUN: dict[str, Any] = {"job_id": JOB, "run_id": RUN_ID, "attempt": 1, "fence": 1}
HOOK = Webhook("oncall", "http://127.0.0.1/")
AT = datetime(2026, 1, 1, tzinfo=UTC)
_numbers = itertools.count(1)


@pytest_asyncio.fixture(loop_scope="session")
async def metrics(database: OpenDatabase) -> Database:
    metrics = await database("metrics")
    await handle(metrics, HANDLERS, make_event(RunStarted(**RUN, started_at=AT)))
    return metrics


def in_hours(hours: float) -> datetime:
    return datetime.now(UTC) + timedelta(hours=hours)


def spec(hours: float = 2, **fields: Any) -> SilenceSpec:
    return SilenceSpec(ends_at=in_hours(hours), **fields)


def queued_in(project: str) -> JobQueued:
    spec = JobSpec.model_validate({"name": "t", "command": ["true"], "project": project})
    return JobQueued(job_id=JOB, request_id="r", spec=spec, queued_at=AT)


async def silence(metrics: Database, wanted: SilenceSpec, **changes: Any) -> list[Payload]:
    command = make_event(SilenceSet(tenant_id="default", spec=wanted))
    return await handle(metrics, HANDLERS, replace(command, **changes))


async def end(metrics: Database, wanted: SilenceSpec) -> list[Payload]:
    silence_id = silence_id_for("default", wanted)
    command = SilenceEnd(tenant_id="default", silence_id=silence_id)
    return await handle(metrics, HANDLERS, make_event(command))


async def raise_(
    metrics: Database, kind: AlertKind = AlertKind.STALLED, event_id: str | None = None
) -> str:
    """An alert is raised, and its event comes back to be sent. Returns the id of the event."""
    event_id = event_id or f"raised-{next(_numbers)}"
    async with metrics.transaction() as tx:
        await store.raise_alert(tx.connection, RUN_ID, kind, again=True)
    alert = AlertRaised(
        tenant_id="default", job_id=JOB, run_id=RUN_ID, attempt=1, alert=kind, detail="slow"
    )
    await send(metrics, alert, event_id)
    return event_id


async def clear(metrics: Database, kind: AlertKind = AlertKind.STALLED) -> str:
    event_id = f"cleared-{next(_numbers)}"
    async with metrics.transaction() as tx:
        await store.clear_alert(tx.connection, RUN_ID, kind)
    alert = AlertCleared(
        tenant_id="default", job_id=JOB, run_id=RUN_ID, attempt=1, alert=kind, detail="fine"
    )
    await send(metrics, alert, event_id)
    return event_id


async def send(metrics: Database, payload: Payload, event_id: str) -> None:
    event = replace(make_event(payload), event_id=event_id, occurred_at=datetime.now(UTC))
    await handle(metrics, webhooks.handlers([HOOK]), event)


async def sent(metrics: Database) -> list[str]:
    """The events that the webhook gets, after what is due was judged again."""
    while await Sender(HOOK, [], metrics).release():
        pass
    async with metrics.connection() as connection:
        rows = await connection.fetch("select event_id from deliveries order by id")
    return [row["event_id"] for row in rows]


async def held(metrics: Database) -> list[str]:
    async with metrics.connection() as connection:
        rows = await connection.fetch("select event_id from held_deliveries order by id")
    return [row["event_id"] for row in rows]


async def time_passes(metrics: Database, hours: float) -> None:
    async with metrics.transaction() as tx:
        for table, column in (("silences", "ends_at"), ("held_deliveries", "held_until")):
            await tx.connection.execute(
                f"update {table} set {column} = {column} - make_interval(secs => $1)", hours * 3600
            )


@pytest.mark.parametrize(
    "wanted",
    [
        {"alert": AlertKind.STALLED, "job_id": JOB},
        {"alert": AlertKind.STALLED},
        {"job_id": JOB},
        {"project": "vision"},
        {},
    ],
    ids=["alert of the job", "alert of the tenant", "job", "project", "everything"],
)
async def test_a_silenced_alert_is_sent_when_its_silence_ends_and_it_is_open(
    metrics: Database, wanted: dict[str, Any]
) -> None:
    await handle(metrics, HANDLERS, make_event(queued_in("vision")))
    await silence(metrics, spec(**wanted))
    event_id = await raise_(metrics)
    assert (await sent(metrics), await held(metrics)) == ([], [event_id])
    await time_passes(metrics, 3)
    assert (await sent(metrics), await held(metrics)) == ([event_id], [])


async def test_silenced_failures_of_checkpoints_are_sent_while_they_last(
    metrics: Database,
) -> None:
    failed = CheckpointingFailed(
        **RUN, tenant_id="default", reason=SaveFailure.STORE_FULL, detail="no space"
    )
    recovered = CheckpointingRecovered(**RUN, tenant_id="default", step=3)
    of_run = spec(2, alert=AlertKind.NO_CHECKPOINTS, job_id=JOB)
    await silence(metrics, of_run)
    await send(metrics, failed, "failed")
    assert (await sent(metrics), await held(metrics)) == ([], ["failed"])
    await send(metrics, recovered, "recovered")
    assert (await sent(metrics), await held(metrics)) == ([], []), "neither begin nor end"
    await send(metrics, failed, "failed again")
    await time_passes(metrics, 3)
    assert await sent(metrics) == ["failed again"]
    await send(metrics, recovered, "recovered again")
    assert await sent(metrics) == ["failed again", "recovered again"]


@pytest.mark.parametrize(
    ("events", "hours_ago"),
    [({"checkpointing.failed"}, 0), (set(), 2)],
    ids=["a webhook that wants no ends", "read after an outage"],
)
async def test_failures_that_are_over_are_not_sent_after_their_silence(
    metrics: Database, events: set[str], hours_ago: float
) -> None:
    failed = CheckpointingFailed(
        **RUN, tenant_id="default", reason=SaveFailure.STORE_FULL, detail="no space"
    )
    hooks = webhooks.handlers([replace(HOOK, events=frozenset(events))])
    await silence(metrics, spec(2, job_id=JOB))
    for payload, hours in (
        (failed, 0.0),
        (CheckpointingRecovered(**RUN, tenant_id="default", step=3), hours_ago),
    ):
        event = replace(make_event(payload), occurred_at=in_hours(-hours))
        await handle(metrics, hooks, event)
    await time_passes(metrics, 3)
    assert (await sent(metrics), await held(metrics)) == ([], [])


@pytest.mark.parametrize(
    "wanted",
    [
        {"alert": AlertKind.DIVERGING},
        {"job_id": job_id_for("default", "another")},
        {"project": "speech"},
    ],
    ids=["another alert", "another job", "another project"],
)
async def test_what_is_not_silenced_is_sent(metrics: Database, wanted: dict[str, Any]) -> None:
    await handle(metrics, HANDLERS, make_event(queued_in("vision")))
    await silence(metrics, spec(**wanted))
    event_id = await raise_(metrics)
    assert await sent(metrics) == [event_id]


async def test_a_silence_of_another_tenant_silences_nothing(metrics: Database) -> None:
    command = make_event(SilenceSet(tenant_id="other", spec=spec(job_id=JOB)), tenant_id="other")
    assert len(await handle(metrics, HANDLERS, command)) == 1
    event_id = await raise_(metrics)
    assert await sent(metrics) == [event_id]


async def test_a_job_counts_for_the_project_that_it_was_moved_to(metrics: Database) -> None:
    await handle(metrics, HANDLERS, make_event(queued_in("vision")))
    moved = JobAnnotated(job_id=JOB, project="speech")
    await handle(metrics, HANDLERS, make_event(moved))
    await silence(metrics, spec(project="speech"))
    await raise_(metrics)
    assert await sent(metrics) == []


async def test_ending_a_silence_sends_what_is_open_and_not_what_is_over(metrics: Database) -> None:
    wanted = spec(job_id=JOB)
    await silence(metrics, wanted)
    await raise_(metrics)
    await clear(metrics)
    slower = await raise_(metrics, AlertKind.SLOWER)
    (ended,) = await end(metrics, wanted)
    assert isinstance(ended, SilenceEnded)
    assert await sent(metrics) == [slower]
    (refused,) = await end(metrics, wanted)
    assert isinstance(refused, SilenceRequestRejected)
    assert refused.reason == "no_such_silence"


async def test_what_another_silence_is_of_stays_held(metrics: Database) -> None:
    of_job, of_all = spec(1, job_id=JOB), spec(4)
    await silence(metrics, of_job)
    await silence(metrics, of_all)
    event_id = await raise_(metrics)
    await end(metrics, of_job)
    assert await sent(metrics) == []
    await end(metrics, of_all)
    assert await sent(metrics) == [event_id]


async def test_a_longer_silence_holds_longer_and_a_shorter_one_shorter(metrics: Database) -> None:
    await silence(metrics, spec(2, job_id=JOB))
    event_id = await raise_(metrics)
    await silence(metrics, spec(10, job_id=JOB))
    await time_passes(metrics, 3)
    assert await sent(metrics) == []
    await silence(metrics, spec(1, job_id=JOB))
    await time_passes(metrics, 2)
    assert await sent(metrics) == [event_id]


async def test_an_alert_of_an_ended_run_is_not_sent_after_its_silence(metrics: Database) -> None:
    await silence(metrics, spec(job_id=JOB))
    await raise_(metrics, AlertKind.NOT_FINITE)
    failed = RunFailed(**RUN, exit_code=1, last_log="", ended_at=AT)
    await handle(metrics, HANDLERS, make_event(failed))
    await time_passes(metrics, 3)
    assert (await sent(metrics), await held(metrics)) == ([], [])


async def test_whoever_was_told_of_an_alert_is_told_that_it_is_over(metrics: Database) -> None:
    raised = await raise_(metrics)
    await silence(metrics, spec(job_id=JOB))
    cleared = await clear(metrics)
    assert await sent(metrics) == [raised, cleared]


async def test_whoever_was_told_of_one_series_is_told_the_end_though_another_was_held_back(
    metrics: Database,
) -> None:
    raised = await raise_(metrics, AlertKind.NOT_FINITE)
    await silence(metrics, spec(job_id=JOB))
    async with metrics.transaction() as tx:
        await store.raise_alert(tx.connection, RUN_ID, "not_finite", "accuracy", again=False)
    await raise_(metrics, AlertKind.NOT_FINITE)
    cleared = await clear(metrics, AlertKind.NOT_FINITE)
    assert (await sent(metrics), await held(metrics)) == ([raised, cleared], [])


async def test_nothing_is_sent_or_held_twice(metrics: Database) -> None:
    await silence(metrics, spec(job_id=JOB))
    event_id = await raise_(metrics)
    await raise_(metrics, event_id=event_id)
    assert await held(metrics) == [event_id]
    await time_passes(metrics, 3)
    assert await sent(metrics) == [event_id]
    assert await sent(metrics) == [event_id]


async def test_a_process_that_dies_while_it_releases_loses_nothing(
    metrics: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    await silence(metrics, spec(job_id=JOB))
    ids = [await raise_(metrics), await raise_(metrics, AlertKind.SLOWER)]
    await time_passes(metrics, 3)
    add, calls = store_deliveries.add, itertools.count(1)

    async def dies_at_the_second(*arguments: Any) -> bool:
        if next(calls) == 2:
            raise ConnectionResetError("killed")
        return await add(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(store_deliveries, "add", dies_at_the_second)
        with pytest.raises(ConnectionResetError):
            await sent(metrics)
    assert await held(metrics) == ids
    assert await sent(metrics) == ids


async def test_setting_it_again_changes_its_end_and_says_so_once(metrics: Database) -> None:
    first = spec(2, job_id=JOB, reason="maintenance")
    (made,) = await silence(metrics, first, event_id="first")
    assert isinstance(made, SilenceChanged)
    assert (made.spec, made.command_event_id) == (first, "first")
    assert await silence(metrics, first) == []
    (changed,) = await silence(metrics, spec(5, job_id=JOB))
    assert isinstance(changed, SilenceChanged)
    assert (changed.silence_id, changed.created_at) == (made.silence_id, made.created_at)
    await time_passes(metrics, 6)
    (anew,) = await silence(metrics, spec(1, job_id=JOB))
    assert isinstance(anew, SilenceChanged)
    assert anew.created_at > made.created_at


async def test_requests_that_are_refused_name_field_and_fix(
    metrics: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "LIMITS", Limits(1, timedelta(days=30)))
    await silence(metrics, spec(job_id=JOB))
    for wanted, reason in (
        (spec(-1), "already_over"),
        (spec(24 * 31), "too_long"),
        (spec(1, project="vision"), "too_many"),
    ):
        (rejected,) = await silence(metrics, wanted)
        assert isinstance(rejected, SilenceRequestRejected)
        assert rejected.reason == reason
        assert rejected.errors[0].fix
        assert rejected.errors[0].field.startswith("spec")
    assert len(await silence(metrics, spec(9, job_id=JOB))) == 1, "the one there is can be changed"


async def test_another_tenants_alerts_cannot_be_silenced(metrics: Database) -> None:
    command = make_event(SilenceSet(tenant_id="other", spec=spec(job_id=JOB)))
    (rejected,) = await handle(metrics, HANDLERS, command)
    assert isinstance(rejected, SilenceRequestRejected)
    assert rejected.reason == "wrong_tenant"
    await raise_(metrics)
    assert len(await sent(metrics)) == 1
