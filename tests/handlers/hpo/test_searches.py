"""Searches that prune, pause, change and take trials from elsewhere, on a real Postgres.

A service that dies at any statement of any event loses and doubles nothing, and a study's stored
events replay it.
"""

import asyncio
from datetime import UTC, datetime, timedelta
from math import ceil
from typing import Any

import pytest
from prometheus_client import REGISTRY

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.base import Payload
from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import allocation_id_for, run_id_for, study_id_for
from drivetrain_schemas.jobs import (
    JobPause,
    JobPaused,
    JobResume,
    JobStop,
    JobStopped,
    JobSubmit,
    TrialOf,
)
from drivetrain_schemas.metrics import TrialMeasured
from drivetrain_schemas.studies import (
    StudyAsk,
    StudyCancel,
    StudyCancelled,
    StudyChange,
    StudyChanged,
    StudyCommandRejected,
    StudyCompleted,
    StudyImport,
    StudyPause,
    StudyPaused,
    StudyRequestRejected,
    StudyResume,
    StudyResumed,
    StudyStop,
    StudyStopping,
    StudySubmit,
)
from drivetrain_schemas.trials import (
    TrialCompleted,
    TrialFailed,
    TrialJudged,
    TrialPaused,
    TrialPromoted,
    TrialProposed,
    TrialReport,
    TrialStopped,
    TrialStopping,
    TrialTell,
)
from services.hpo import clock, instruments, messages, searches, spending, store
from services.hpo.core import inputs, search
from services.hpo.core.search import Search
from services.hpo.core.status import Status
from services.hpo.handlers import HANDLERS, handle_batch
from services.runtime.clock import SystemClock
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.costs.hpo import studies
from tests.events import emitted, handle, make_event
from tests.handlers.hpo.test_studies import (
    FINISHED_AT,
    STUDY_ID,
    make_request,
    make_spec,
    of_type,
    succeeded,
)

STARTED = datetime(2026, 1, 1, tzinfo=UTC)
JOB = {
    "name": "digits",
    "command": "python -m train",
    "metric": {"name": "loss", "goal": "minimize"},
    "max_steps": 27,
}
ASHA = {"type": "asha", "min_steps": 3, "reduction_factor": 3}
NUM = 1000  # of trials, where there are many
PAUSING = {**ASHA, "mode": "pause"}


@pytest.fixture
async def hpo(database: OpenDatabase) -> Database:
    return await database("hpo")


@pytest.fixture(autouse=True)
def fresh_process() -> None:
    searches.kept.clear()


def search_request(**fields: Any) -> Event[Any]:
    return make_request(**{"job": JOB, "max_trials": 9, "max_parallel_trials": 3, **fields})


def renamed(request: Event[Any], request_id: str) -> Event[Any]:
    ids = {"request_id": request_id, "study_id": study_id_for("default", request_id)}
    return make_event(request.payload.model_copy(update=ids))


def measured(command: JobSubmit, step: int, value: float | None) -> Event[TrialMeasured]:
    assert command.trial is not None
    assert command.job_id is not None
    return make_event(
        TrialMeasured(
            study_id=command.trial.study_id,
            number=command.trial.number,
            job_id=command.job_id,
            run_id=run_id_for(command.job_id, 1),
            attempt=1,
            step=step,
            value=value,
        )
    )


def stopped(command: JobSubmit) -> Event[JobStopped]:
    document = {
        "job_id": command.job_id,
        "reason": "by command",
        "finished_at": FINISHED_AT,
        "trial": command.trial,
    }
    return make_event(JobStopped.model_validate(document))


def paused(command: JobSubmit) -> Event[JobPaused]:
    document = {
        "job_id": command.job_id,
        "reason": "by command",
        "attempt": 1,
        "step": 3,
        "paused_at": FINISHED_AT,
        "trial": command.trial,
    }
    return make_event(JobPaused.model_validate(document))


def allocation(command: JobSubmit, num_slots: int = 2) -> dict[str, Any]:
    job_id = str(command.job_id)
    return {
        "job_id": job_id,
        "run_id": run_id_for(job_id, 1),
        "attempt": 1,
        "fence": 1,
        "allocation_id": allocation_id_for(job_id, 1),
        "tenant_id": "default",
        "pool": "default",
        "device_type": "cpu",
        "slots": [{"node_id": "node-1", "slot": slot} for slot in range(num_slots)],
        "granted_at": STARTED,
    }


def granted(command: JobSubmit, **fields: Any) -> Event[AllocationGranted]:
    return make_event(AllocationGranted.model_validate(allocation(command) | fields))


def released(command: JobSubmit) -> Event[AllocationReleased]:
    end = STARTED + timedelta(hours=1)
    document = allocation(command) | {"released_at": end, "paid_ends_at": end}
    return make_event(AllocationReleased.model_validate(document))


async def start(hpo: Database, **fields: Any) -> list[JobSubmit]:
    return of_type(await handle(hpo, HANDLERS, search_request(**fields)), JobSubmit)


async def with_poor_trial(hpo: Database) -> tuple[list[JobSubmit], list[Payload]]:
    """Three trials at their first rung; the last one is the worst and is stopped."""
    commands = await start(hpo, pruner=ASHA)
    for _ in range(2):
        payloads = await handle(hpo, HANDLERS, granted(commands[-1]))
        commands += of_type(payloads, JobSubmit)
    commands = commands[:3]
    for value, command in enumerate(commands):
        payloads = await handle(hpo, HANDLERS, measured(command, 3, float(value)))
    return commands, payloads


async def test_a_trial_that_is_stopped_early_tells_why_and_is_not_ranked(hpo: Database) -> None:
    commands, payloads = await with_poor_trial(hpo)
    assert commands[0].trial is not None
    assert commands[0].trial.rungs == (3, 9)
    [judged] = of_type(payloads, TrialJudged)
    assert (judged.number, judged.step, judged.value, judged.verdict) == (2, 3, 2.0, "stop")
    assert judged.rank == 3
    [stopping] = of_type(payloads, TrialStopping)
    [stop] = of_type(payloads, JobStop)
    assert (stop.job_id, stop.checkpoint) == (commands[2].job_id, False)
    assert stopping.reason == judged.reason == stop.reason
    settled, *rest = await handle(hpo, HANDLERS, stopped(commands[2]))
    assert isinstance(settled, TrialStopped)
    assert (settled.step, settled.value, settled.reason) == (3, 2.0, judged.reason)
    assert of_type(rest, TrialProposed), "its place is used"
    late = [succeeded(commands[2], 0.0), measured(commands[2], 9, 0.0), stopped(commands[2])]
    assert await handle(hpo, HANDLERS, *late) == []


async def test_a_trial_waits_without_devices_and_goes_on_when_it_is_among_the_best(
    hpo: Database,
) -> None:
    waiting, told = await start(hpo, pruner=PAUSING), list[Payload]()
    for _ in range(3):
        trial = waiting.pop(0)
        assert trial.trial is not None
        value = trial.trial.number / 10
        for given in (granted(trial), measured(trial, 3, value), paused(trial)):
            payloads = await handle(hpo, HANDLERS, given)
            waiting += of_type(payloads, JobSubmit)
            told += payloads
    assert [one.number for one in of_type(told, TrialPaused)] == [0, 1, 2]
    assert len(of_type(told, JobPause)) == 3
    # The place is free once no trial waits for devices.
    for trial in waiting:
        told += await handle(hpo, HANDLERS, granted(trial))
    [promoted] = of_type(told, TrialPromoted)
    [resume] = of_type(told, JobResume)
    assert promoted.number == 0, "the best of the first three"
    assert resume.job_id == promoted.job_id


async def test_a_study_pauses_resumes_stops_and_is_extended(hpo: Database) -> None:
    commands = await start(hpo, max_parallel_trials=2)
    assert [type(one) for one in await handle(hpo, HANDLERS, command(StudyPause))] == [StudyPaused]
    assert of_type(await handle(hpo, HANDLERS, succeeded(commands[0], 0.5)), JobSubmit) == []
    resumed, *rest = await handle(hpo, HANDLERS, command(StudyResume))
    assert isinstance(resumed, StudyResumed)
    [third] = of_type(rest, JobSubmit)
    payloads = await handle(hpo, HANDLERS, command(StudyStop, reason="good enough"))
    assert [type(one) for one in payloads] == [StudyStopping] + [TrialStopping, JobStop] * 2
    [refused] = await handle(hpo, HANDLERS, command(StudyChange, max_trials=20))
    assert (refused.reason, "when it has ended" in refused.detail) == ("already_finished", True)
    await handle(hpo, HANDLERS, stopped(commands[1]))
    _, completed = await handle(hpo, HANDLERS, stopped(third))
    assert isinstance(completed, StudyCompleted)
    assert (completed.ended_by, completed.num_stopped) == ("stopped", 2)
    assert completed.best_number == 0
    changed, *rest = await handle(
        hpo, HANDLERS, command(StudyChange, max_trials=4, max_parallel_trials=1)
    )
    assert isinstance(changed, StudyChanged)
    assert (changed.is_revived, changed.max_trials) == (True, 4)
    [last] = of_type(rest, JobSubmit)
    _, completed = await handle(hpo, HANDLERS, succeeded(last, 0.25))
    assert (completed.ended_by, completed.best_number) == ("max_trials", 3)


async def test_a_rung_that_is_told_after_the_end_of_its_study_ranks_later_trials(
    hpo: Database,
) -> None:
    """Ends and rungs come from two topics: no order holds between them."""
    commands = await start(hpo, pruner=ASHA, max_trials=3, max_parallel_trials=1)
    for number in range(3):
        payloads = await handle(hpo, HANDLERS, succeeded(commands[number], 0.1))
        commands += of_type(payloads, JobSubmit)
    assert isinstance(payloads[-1], StudyCompleted)
    [judged] = await handle(hpo, HANDLERS, measured(commands[2], 3, 0.2))
    assert isinstance(judged, TrialJudged)
    assert (judged.verdict, judged.rank) == ("continue", 1)
    assert await handle(hpo, HANDLERS, measured(commands[2], 3, 0.2)) == []
    searches.kept.clear()
    [last] = of_type(await handle(hpo, HANDLERS, command(StudyChange, max_trials=4)), JobSubmit)
    [judged] = of_type(await handle(hpo, HANDLERS, measured(last, 3, 0.9)), TrialJudged)
    assert (judged.verdict, judged.rank, judged.threshold) == ("stop", 2, 0.2)


async def test_a_rung_that_a_trial_came_to_before_it_was_paused_counts_when_it_has_ended(
    hpo: Database,
) -> None:
    [first] = await start(hpo, pruner=PAUSING, max_parallel_trials=1)
    await handle(hpo, HANDLERS, measured(first, 3, 0.5))
    assert await handle(hpo, HANDLERS, measured(first, 9, 0.25)) == []
    completed, *_, judged = await handle(hpo, HANDLERS, succeeded(first, 0.1))
    assert isinstance(completed, TrialCompleted)
    assert isinstance(judged, TrialJudged)
    assert (judged.step, judged.value, judged.verdict) == (9, 0.25, "continue")


async def test_two_changes_of_different_limits_both_count(hpo: Database) -> None:
    """Each names only what it changes, as two people do at the same time."""
    await start(hpo, limits={"hours": 24.0, "no_improvement": {"trials": 9, "min_change": 0.1}})
    await handle(hpo, HANDLERS, command(StudyChange, changed_limits={"cost_usd": 20.0}))
    [changed] = await handle(
        hpo, HANDLERS, command(StudyChange, changed_limits={"hours": 48.0, "failed_trials": 3})
    )
    assert isinstance(changed, StudyChanged)
    assert changed.limits.model_dump() == {
        "device_hours": None,
        "cost_usd": 20.0,
        "hours": 48.0,
        "no_improvement": {"trials": 9, "min_change": 0.1},
        "failed_trials": 3,
    }


async def at_once(hpo: Database, *events: Event[Any]) -> list[Payload]:
    """Each in a transaction of its own, all of which wait for the study before one of them has it.
    Their searches are those of other processes: none is kept."""
    before = len(await emitted(hpo))
    async with hpo.connection() as other, asyncio.TaskGroup() as group:
        async with other.transaction():
            await store.lock_studies(other, [STUDY_ID])
            for event in events:
                group.create_task(handle(hpo, HANDLERS, event))
            async with hpo.connection() as looking:
                while await looking.fetchval(WAITING) < len(events):
                    await asyncio.sleep(0)
        searches.kept.clear()
    return [event.payload for event in await emitted(hpo)][before:]


WAITING = """select count(*) from pg_stat_activity
    where wait_event_type = 'Lock' and datname = current_database()"""


async def test_two_extensions_at_once_both_count_and_one_that_comes_twice_counts_once(
    hpo: Database,
) -> None:
    await start(hpo, max_trials=3, max_parallel_trials=1)
    extended = command(StudyChange, max_trials=12)
    payloads = await at_once(hpo, extended, command(StudyChange, max_parallel_trials=2), extended)
    assert len(of_type(payloads, StudyChanged)) == 2
    last = of_type(payloads, StudyChanged)[-1]
    assert (last.max_trials, last.max_parallel_trials) == (12, 2)
    assert len(of_type(payloads, JobSubmit)) == 1, "one more at the same time"


async def test_a_study_that_has_ended_is_revived_once_by_two_extensions_at_once(
    hpo: Database,
) -> None:
    [first] = await start(hpo, max_trials=1, max_parallel_trials=1)
    [*_, completed] = await handle(hpo, HANDLERS, succeeded(first, 0.5))
    assert isinstance(completed, StudyCompleted)
    payloads = await at_once(hpo, *(command(StudyChange, max_trials=number) for number in (3, 4)))
    changes = of_type(payloads, StudyChanged)
    assert sorted(one.max_trials for one in changes) == [3, 4]
    assert [one.is_revived for one in changes] == [True, False]
    [second] = of_type(payloads, JobSubmit)
    assert second.trial is not None
    assert second.trial.number == 1


def command(kind: type[Payload], tenant_id: str = "default", **fields: Any) -> Event[Any]:
    return make_event(kind.model_validate({"study_id": STUDY_ID, **fields}), tenant_id=tenant_id)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (command(StudyPause, tenant_id="other"), "no_such_study"),
        (command(StudyResume), "not_paused"),
        (command(StudyChange), "invalid"),
        (command(StudyChange, max_trials=1), "invalid"),
        (command(StudyAsk, request_id="ask"), "not_external"),
        (command(TrialTell, number=0, values=[0.5]), "not_external"),
    ],
)
async def test_a_command_that_does_not_fit_is_refused_and_changes_nothing(
    hpo: Database, given: Event[Any], reason: str
) -> None:
    await start(hpo)
    [refused] = await handle(hpo, HANDLERS, given)
    assert isinstance(refused, StudyCommandRejected)
    assert (refused.reason, refused.command_event_id) == (reason, given.event_id)


EXTERNAL = {"job": {**JOB, "command": ["external"]}, "external": True}


async def test_trials_elsewhere_are_asked_for_judged_and_told_about(hpo: Database) -> None:
    assert await start(hpo, **EXTERNAL, pruner=ASHA, max_trials=3) == []
    numbers = []
    for place in range(3):
        ask = command(StudyAsk, request_id=f"ask-{place}")
        [proposed] = await handle(hpo, HANDLERS, ask)
        assert isinstance(proposed, TrialProposed)
        assert (proposed.request_id, proposed.rungs) == (f"ask-{place}", (3, 9))
        assert proposed.is_external
        numbers.append(proposed.number)
        again = command(StudyAsk, request_id=f"ask-{place}")
        assert await handle(hpo, HANDLERS, again) == [], "the same request is the same trial"
    assert numbers == [0, 1, 2]
    [refused] = await handle(hpo, HANDLERS, command(StudyAsk, request_id="more"))
    assert refused.reason == "too_many_running"
    for number in numbers:
        report = command(TrialReport, number=number, step=3, value=float(number))
        payloads = await handle(hpo, HANDLERS, report)
    assert [type(one) for one in payloads] == [TrialJudged, TrialStopping], "and no command"
    [settled] = await handle(hpo, HANDLERS, command(TrialTell, number=2, is_stopped=True))
    assert isinstance(settled, TrialStopped)
    [refused] = await handle(hpo, HANDLERS, command(TrialTell, number=1, values=[0.5, 0.5]))
    assert (refused.reason, refused.errors[0].field) == ("invalid", "values")
    [refused] = await handle(hpo, HANDLERS, command(TrialTell, number=9, values=[0.5]))
    assert refused.reason == "no_such_trial"
    [refused] = await handle(hpo, HANDLERS, command(TrialTell, number=2, values=[0.5]))
    assert refused.reason == "already_finished"
    [failed] = await handle(hpo, HANDLERS, command(TrialTell, number=0))
    assert isinstance(failed, TrialFailed)
    completed, study = await handle(hpo, HANDLERS, command(TrialTell, number=1, values=[0.5]))
    assert isinstance(completed, TrialCompleted)
    assert (study.best_number, study.num_failed, study.num_stopped) == (1, 1, 1)


async def test_the_first_report_at_or_after_a_rung_is_the_value_there(hpo: Database) -> None:
    await start(hpo, **EXTERNAL, pruner=ASHA, max_trials=3)
    for place in range(3):
        await handle(hpo, HANDLERS, command(StudyAsk, request_id=f"ask-{place}"))

    async def report(number: int, step: int, value: float) -> list[tuple[int, float | None]]:
        given = command(TrialReport, number=number, step=step, value=value)
        judged = of_type(await handle(hpo, HANDLERS, given), TrialJudged)
        return [(one.step, one.value) for one in judged]

    assert await report(0, 2, 0.9) == []
    assert await report(0, 5, 0.5) == [(3, 0.5)]
    assert await report(0, 6, 0.4) == []
    assert await report(1, 26, 0.1) == [(3, 0.1), (9, 0.1)]
    assert await report(2, 10, 0.8) == [(3, 0.8)], "it stops there"


async def test_refused_asks_are_not_kept_and_a_cancel_waits_for_nobody(hpo: Database) -> None:
    """Whoever asked may ask again every second, or be gone."""
    await start(hpo, **EXTERNAL, max_trials=9)
    for place in range(3):
        await handle(hpo, HANDLERS, command(StudyAsk, request_id=f"ask-{place}"))
    async with hpo.connection() as connection:
        before = await store.events_of(connection, STUDY_ID)
        [refused] = await handle(hpo, HANDLERS, command(StudyAsk, request_id="more"))
        assert refused.reason == "too_many_running"
        assert await store.events_of(connection, STUDY_ID) == before
    payloads = await handle(hpo, HANDLERS, command(StudyCancel, reason="over"))
    assert [one.number for one in of_type(payloads, TrialFailed)] == [0, 1, 2]
    assert isinstance(payloads[-1], StudyCancelled)
    [refused] = await handle(hpo, HANDLERS, command(TrialTell, number=0, values=[0.5]))
    assert refused.reason == "already_finished"


async def test_reading_the_clock_loads_no_trials(hpo: Database) -> None:
    """It is read every few seconds for every study with a limit, however many there are."""
    await start(hpo, limits={"hours": 1_000.0})
    searches.kept.clear()
    await clock.look(hpo, SystemClock())
    assert not len(searches.kept)


async def with_paused_trials(hpo: Database) -> list[JobSubmit]:
    """Three trials came to their first rung: the best goes on, two wait."""
    commands = await start(hpo, pruner=PAUSING, max_parallel_trials=1)
    for place in range(3):
        last = commands[-1]
        payloads = await handle(hpo, HANDLERS, measured(last, 3, float(place)), paused(last))
        commands += of_type(payloads, JobSubmit)
    return commands


async def test_many_paused_trials_end_in_bounded_transactions_also_after_a_death(
    hpo: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = studies.spec_of(NUM + 10, 1, pruner=PAUSING)
    study = studies.search_of(spec, NUM, 1, share=NUM, are_paused=True)
    study_id = await studies.stored(hpo, "many", spec, study)
    await handle(hpo, HANDLERS, make_event(StudyStop(study_id=study_id)))
    whole, num_saved = store.save, 0

    async def die(*arguments: Any) -> None:
        nonlocal num_saved
        num_saved += 1
        await whole(*arguments)
        if num_saved == 3:
            raise Died

    with monkeypatch.context() as patch:
        patch.setattr(store, "save", die)
        await clock.look(hpo, SystemClock())
    assert num_saved == 3, "in the middle"
    searches.kept.clear()
    await clock.look(hpo, SystemClock())
    ended = of_type([event.payload for event in await emitted(hpo)], TrialStopped)
    assert sorted(one.number for one in ended) == list(range(1, NUM))
    async with hpo.connection() as connection:
        assert await store.with_more(connection) == []
        rows = await connection.fetch("select count(*) from outbox group by xmin::text")
    sizes = [row["count"] for row in rows]
    assert len(sizes) == ceil((NUM - 1) / search.MAX_ENDED_AT_ONCE)
    assert max(sizes) <= 2 * search.MAX_ENDED_AT_ONCE + 3, "an event and a command each"


def value_of(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_gauges_show_what_has_not_ended_and_counters_what_ended_early(hpo: Database) -> None:
    commands = await with_paused_trials(hpo)
    await handle(hpo, HANDLERS, granted(commands[0]))
    await clock.look(hpo, SystemClock())
    assert value_of("drivetrain_hpo_studies", state="running") == 1
    assert value_of("drivetrain_hpo_trials", state="running") == 1
    assert value_of("drivetrain_hpo_trials", state="paused") == 2
    async with hpo.connection() as connection:
        num_events = len(await store.events_of(connection, STUDY_ID))
    for what in ("all", "longest"):
        assert value_of("drivetrain_hpo_log_events", what=what) == num_events

    stops = {"pruner": "asha", "why": "study"}
    num_stopped = value_of("drivetrain_hpo_trials_stopped_total", **stops)
    saved = value_of("drivetrain_hpo_saved_device_seconds_total")
    await handle(hpo, HANDLERS, command(StudyStop), released(commands[0]))
    await handle(hpo, HANDLERS, stopped(commands[0]))
    await clock.look(hpo, SystemClock())
    for state in ("running", "paused", "ending"):
        assert value_of("drivetrain_hpo_studies", state=state) == 0
    assert value_of("drivetrain_hpo_trials", state="paused") == 0
    assert value_of("drivetrain_hpo_trials_stopped_total", **stops) == num_stopped + 3
    async with hpo.connection() as connection:
        used = await spending.device_seconds(connection, STUDY_ID)
    assert used > 0
    # Each of the three ran 3 of its 27 steps.
    saved = value_of("drivetrain_hpo_saved_device_seconds_total") - saved
    assert saved == pytest.approx(8 * used)


async def test_trials_that_wait_when_their_study_is_stopped_end_in_transactions_of_their_own(
    hpo: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands = await with_paused_trials(hpo)
    monkeypatch.setattr(search, "MAX_ENDED_AT_ONCE", 1)
    payloads = await handle(hpo, HANDLERS, command(StudyStop))
    assert [one.number for one in of_type(payloads, TrialStopped)] == [1]
    before = len(await emitted(hpo))
    await clock.look(hpo, SystemClock())
    found = [event.payload for event in await emitted(hpo)][before:]
    assert [one.number for one in of_type(found, TrialStopped)] == [2]
    [*_, completed] = await handle(hpo, HANDLERS, stopped(commands[0]))
    assert isinstance(completed, StudyCompleted)
    async with hpo.connection() as connection:
        assert await store.with_more(connection) == []


async def test_a_study_that_cannot_be_read_leaves_the_others_their_limits(hpo: Database) -> None:
    await start(hpo, limits={"hours": 1.0})
    healthy = renamed(search_request(limits={"hours": 1.0}), "later")
    await handle(hpo, HANDLERS, healthy)
    broken, healthy_id = sorted([STUDY_ID, healthy.payload.study_id])
    async with hpo.connection() as connection:
        await connection.execute("update studies set status = '[]' where study_id = $1", broken)
    before = instruments.LIMITS_NOT_READ._value.get()
    hours = (datetime.now(UTC) - STARTED) / timedelta(hours=1)
    await clock.look(hpo, Later(hours + 2))
    found = of_type([event.payload for event in await emitted(hpo)], StudyStopping)
    assert [one.study_id for one in found] == [healthy_id]
    assert instruments.LIMITS_NOT_READ._value.get() == before + 1


async def test_finished_trials_from_elsewhere_are_the_first_of_a_study(hpo: Database) -> None:
    point = {"hyperparameters": {"learning_rate": 0.01}, "values": [0.5]}
    fields = {"request_id": "study-1", "spec": make_spec().model_dump(), "trials": [point, point]}
    payloads = await handle(
        hpo, HANDLERS, make_event(StudyImport.model_validate({**fields, "study_id": STUDY_ID}))
    )
    assert len(of_type(payloads, TrialCompleted)) == 2
    [submit] = of_type(payloads, JobSubmit)
    _, study = await handle(hpo, HANDLERS, succeeded(submit, 0.75))
    assert (study.best_number, study.num_completed) == (0, 3)
    wrong = {**fields, "request_id": "two", "study_id": study_id_for("default", "two")}
    wrong["trials"] = [{"hyperparameters": {"learning_rate": 7.0}, "values": [0.5]}]
    [refused] = await handle(hpo, HANDLERS, make_event(StudyImport.model_validate(wrong)))
    assert isinstance(refused, StudyRequestRejected)
    assert refused.errors[0].field == "trials.0.hyperparameters"


async def test_a_population_needs_trials_that_run_here(hpo: Database) -> None:
    """A study that started none of its trials would end at once, as if all of them had been."""
    population = {"type": "population", "every_steps": 3, "size": 2, "quantile": 0.5}
    job = {**JOB, "checkpoint": {"every_steps": 3}}
    commands = await start(hpo, job=job, pruner=population, max_trials=9)
    for submit in commands:  # the second one begins when the first has ended
        payloads = await handle(hpo, HANDLERS, succeeded(submit, 0.5))
        commands += of_type(payloads, JobSubmit)
    assert len(commands) == 2
    assert isinstance(payloads[-1], StudyCompleted)
    [refused] = await handle(hpo, HANDLERS, command(StudyChange, max_trials=20))
    assert (refused.reason, refused.errors[0].field) == ("invalid", "max_trials")

    spec = make_spec(job=job, pruner=population, max_trials=9).model_dump()
    point = {"hyperparameters": {"learning_rate": 0.01}, "values": [0.5]}
    fields = {"request_id": "two", "study_id": study_id_for("default", "two")}
    imported = StudyImport.model_validate({**fields, "spec": spec, "trials": [point, point]})
    [refused] = await handle(hpo, HANDLERS, make_event(imported))
    assert isinstance(refused, StudyRequestRejected)
    assert refused.errors[0].field == "pruner.type"


class Later(SystemClock):
    """The time after this many hours."""

    def __init__(self, hours: float) -> None:
        super().__init__()
        self._hours = hours

    def now(self) -> datetime:
        return STARTED + timedelta(hours=self._hours)


@pytest.mark.parametrize(
    ("limits", "ended_by"),
    [
        ({"device_hours": 9.0}, "device_hours"),
        ({"cost_usd": 2.9}, "cost"),
    ],
)
async def test_devices_held_and_paid_for_end_a_study_at_its_limit(
    hpo: Database, limits: dict[str, float], ended_by: str
) -> None:
    """One trial held 2 slots for 1 hour, which cost 0.60 USD; another has held 2 since."""
    first, second, _ = await start(hpo, limits=limits)
    end = STARTED + timedelta(hours=1)
    released = allocation(first) | {"released_at": end, "paid_ends_at": end}
    charge = {
        **{name: released[name] for name in ("tenant_id", "job_id", "run_id", "attempt")},
        **{name: released[name] for name in ("allocation_id", "pool", "device_type")},
        "charge_id": "charge_" + "a" * 26,
        "num_slots": 2,
        "starts_at": STARTED,
        "ends_at": STARTED + timedelta(hours=1),
        "price_id": "p1",
        "price_micro_usd_per_slot_hour": 300_000,
        "amount_micro_usd": 600_000,
    }
    await handle(
        hpo,
        HANDLERS,
        granted(first),
        make_event(AllocationReleased.model_validate(released)),
        make_event(ChargeRecorded.model_validate(charge)),
        granted(second, granted_at=STARTED + timedelta(hours=1)),
    )
    before = len(await emitted(hpo))
    await clock.look(hpo, Later(4.4))
    assert len(await emitted(hpo)) == before, "8.8 hours, 2.64 USD"
    await clock.look(hpo, Later(5.0))
    found = [event.payload for event in (await emitted(hpo))[before:]]
    [stopping] = of_type(found, StudyStopping)
    assert stopping.ended_by == ended_by
    assert len(of_type(found, JobStop)) == 3
    after = len(await emitted(hpo))
    await clock.look(hpo, Later(6.0))
    assert len(await emitted(hpo)) == after, "once"


async def test_devices_cost_what_others_paid_before_the_study_is_charged(hpo: Database) -> None:
    """The first charge comes when the first trial ends, which may be far beyond the limit."""
    first, *_ = await start(hpo, limits={"cost_usd": 2.9})
    fields = allocation(first)
    names = ("tenant_id", "run_id", "attempt", "pool", "device_type")
    charge = {
        **{name: fields[name] for name in names},
        "job_id": "job_" + "a" * 26,
        "allocation_id": "alloc_" + "a" * 26 + "_1",
        "charge_id": "charge_" + "a" * 26,
        "num_slots": 1,
        "starts_at": STARTED,
        "ends_at": STARTED + timedelta(hours=1),
        "price_id": "p1",
        "price_micro_usd_per_slot_hour": 300_000,
        "amount_micro_usd": 300_000,
    }
    await handle(hpo, HANDLERS, make_event(ChargeRecorded.model_validate(charge)), granted(first))
    before = len(await emitted(hpo))
    await clock.look(hpo, Later(4.8))
    assert len(await emitted(hpo)) == before, "2 slots for 4.8 hours: 2.88 USD"
    await clock.look(hpo, Later(4.9))
    found = [event.payload for event in (await emitted(hpo))[before:]]
    assert [one.ended_by for one in of_type(found, StudyStopping)] == ["cost"]


class Died(Exception):
    """The process ended."""


STATEMENTS = [
    name for name in dir(store) if name.startswith(("insert_", "save_", "finish_", "revive_"))
]


async def together(hpo: Database, *events: Event[Any]) -> None:
    """All events in one transaction, as the consumer handles a batch."""
    async with hpo.transaction() as tx:
        await handle_batch(tx, events)


async def story(hpo: Database) -> list[Event[Any]]:
    """A study from its request to its end, and one beside it: in `hpo`, and as events."""
    commands, _ = await with_poor_trial(hpo)
    beside_it = renamed(search_request(max_trials=1), "beside")
    [beside] = of_type(await handle(hpo, HANDLERS, beside_it), JobSubmit)
    return [
        search_request(pruner=ASHA, max_trials=4),
        beside_it,
        *(granted(command) for command in (beside, *commands)),
        *(measured(command, 3, float(place)) for place, command in enumerate(commands)),
        stopped(commands[2]),
        released(beside),
        succeeded(beside, 0.75),
        succeeded(commands[1], 0.5),
        command(StudyStop),
        succeeded(commands[0], 0.25),
        succeeded(commands[0], 0.75),
        command(StudyChange, max_trials=6),
    ]


async def told(hpo: Database) -> list[Any]:
    """What was emitted, without what differs by chance."""
    return [
        event.payload.model_dump(exclude={"finished_at", "started_at"})
        for event in await emitted(hpo)
    ]


async def test_a_batch_decides_and_stores_what_its_events_do_one_by_one(
    database: OpenDatabase,
) -> None:
    given = await story(await database("hpo"))
    hpo, batched = await database("hpo"), await database("hpo")
    await handle(hpo, HANDLERS, *given)
    await together(batched, *given)
    assert await told(batched) == await told(hpo)
    assert await state(batched) == await state(hpo)
    assert (await stored(batched, "spending"))[0]["slot_seconds"] == 7200.0


@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("dies_in", STATEMENTS)
async def test_a_death_at_any_statement_of_any_batch_loses_and_doubles_nothing(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch, dies_in: str, size: int
) -> None:
    given = await story(await database("hpo"))
    hpo, disturbed = await database("hpo"), await database("hpo")
    await handle(hpo, HANDLERS, *given)
    whole = getattr(store, dies_in)

    async def die(*arguments: Any, **options: Any) -> Any:
        await whole(*arguments, **options)
        raise Died

    for first in range(0, len(given), size):
        batch = given[first : first + size]
        with monkeypatch.context() as patch:
            patch.setattr(store, dies_in, die)
            try:
                await together(disturbed, *batch)
            except Died:
                pass
            else:
                continue
        # A batch that failed is handled again one by one.
        await handle(disturbed, HANDLERS, *batch)
    assert await told(disturbed) == await told(hpo)
    assert await state(disturbed) == await state(hpo)


async def state(hpo: Database) -> Any:
    """Every row, without what differs by chance."""
    chance = {"stamp", "started_at", "finished_at", "command_event_id", "at"}
    return [
        [{name: row[name] for name in row.keys() - chance} for row in await stored(hpo, table)]
        for table in ("studies", "trials", "search_events", "spending", "trial_allocations")
    ]


async def stored(hpo: Database, table: str) -> list[dict[str, Any]]:
    async with hpo.connection() as connection:
        rows = await connection.fetch(f"select * from {table} order by 1, 2")
    return [dict(row) for row in rows]


async def test_the_stored_events_of_a_study_replay_it(hpo: Database) -> None:
    commands, _ = await with_poor_trial(hpo)
    given = [stopped(commands[2]), succeeded(commands[0], 0.5), command(StudyChange, max_trials=8)]
    await handle(hpo, HANDLERS, *given)
    async with hpo.connection() as connection:
        study = await store.get_study(connection, STUDY_ID)
        log = await store.events_of(connection, STUDY_ID)
        assert study is not None
        loaded = await searches.take(connection, study)
    spec, stored = loaded.spec, loaded.search
    replayed = Search(messages.to_plan(spec), Status(messages.to_numbers(spec)))
    for text in log:
        replayed.on(*inputs.load(text))
    assert list(replayed.trials) == list(stored.trials)
    assert (replayed.status, replayed.opened) == (stored.status, stored.opened)


async def test_a_warm_start_takes_the_trials_that_were_there_and_a_study_that_ended(
    hpo: Database,
) -> None:
    [only] = await start(hpo, max_trials=1)
    later = make_request("default", warm_start=[STUDY_ID], job=JOB)
    later = renamed(later, "two")
    [refused] = await handle(hpo, HANDLERS, later)
    assert refused.errors[0].field == "warm_start.0"
    await handle(hpo, HANDLERS, succeeded(only, 0.5))
    again = renamed(later, "three")
    started, *_ = await handle(hpo, HANDLERS, again)
    async with hpo.connection() as connection:
        study = await store.get_study(connection, started.study_id)
        assert study is not None
        search = (await searches.take(connection, study)).search
    [earlier] = search.trials.earlier
    assert earlier.losses.tolist() == [0.5]
    assert earlier.units.shape == (1, 1)


async def test_a_job_that_claims_a_trial_of_a_later_study_does_not_end_it(hpo: Database) -> None:
    first, *_ = await start(hpo, max_trials=1)
    later = study_id_for("default", "later")
    end = succeeded(first, 0.0).payload
    claimed = end.model_copy(update={"trial": TrialOf(study_id=later, number=0)})
    assert await handle(hpo, HANDLERS, make_event(claimed)) == []
    submit = StudySubmit(request_id="later", study_id=later, spec=make_spec(job=JOB, max_trials=2))
    assert of_type(await handle(hpo, HANDLERS, make_event(submit)), TrialCompleted) == []


async def test_an_event_of_a_search_in_memory_does_not_read_the_request_again(
    hpo: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    [only] = await start(hpo, max_trials=1)
    monkeypatch.delattr(store, "asked")
    [*_, completed] = await handle(hpo, HANDLERS, succeeded(only, 0.5))
    assert isinstance(completed, StudyCompleted)


async def test_trials_are_found_by_their_jobs_without_reading_all_of_them(
    database: OpenDatabase,
) -> None:
    """Also by the plan that Postgres keeps from the first minute of a platform."""
    hpo = await database("hpo", is_fresh=True)
    [job] = await start(hpo, max_trials=1)
    wanted = [f"job_{place}" for place in range(100)] + [str(job.job_id)]
    async with hpo.connection() as connection, connection.transaction():
        for _ in range(10):
            found = await store.trials_of_jobs(connection, wanted)
        num_scans = await connection.fetchval(
            "select seq_scan from pg_stat_xact_user_tables "
            "where relname = 'trials' and schemaname = current_schema"
        )
    assert [(one.study_id, one.number) for one in found.values()] == [(STUDY_ID, 0)]
    assert num_scans == 0
