"""Budgets: set, refused, reached, released; the jobs that they stop."""

from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import asyncpg
import httpx
import pytest

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.base import Payload
from drivetrain_schemas.budgets import (
    BudgetChanged,
    BudgetReached,
    BudgetReleased,
    BudgetRemove,
    BudgetRemoved,
    BudgetRequestRejected,
    BudgetSet,
    BudgetSpec,
)
from drivetrain_schemas.ids import allocation_id_for, job_id_for, run_id_for, study_id_for
from drivetrain_schemas.jobs import JobQueued, JobSpec, JobStop, TrialOf
from drivetrain_schemas.runs import RunSucceeded
from drivetrain_schemas.trials import TrialProposed
from services.cost import store, store_spend
from services.cost.api import read_api
from services.cost.budget_watch import BudgetWatch
from services.cost.budgets import REFUSALS
from services.cost.core.prices import Price, PriceBook
from services.cost.handlers import handlers
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.events import emitted, handle, make_event

# A dollar for each slot and second.
BOOK = PriceBook((Price("cpu-2026", "cpu", datetime(2026, 1, 1, tzinfo=UTC), 3_600_000_000),))
STUDY = study_id_for("default", "search")


def granted(job: str, ago: timedelta, tenant_id: str = "default") -> AllocationGranted:
    return AllocationGranted(**facts(job, ago, tenant_id))


def released(job: str, ago: timedelta, tenant_id: str = "default") -> AllocationReleased:
    """Ten seconds after its grant: ten dollars."""
    held = facts(job, ago, tenant_id)
    end = held["granted_at"] + timedelta(seconds=10)
    return AllocationReleased(**held, released_at=end, paid_ends_at=end)


def facts(job: str, ago: timedelta, tenant_id: str) -> dict[str, Any]:
    job_id = job_id_for(tenant_id, job)
    return {
        "job_id": job_id,
        "run_id": run_id_for(job_id, 1),
        "attempt": 1,
        "fence": 1,
        "allocation_id": allocation_id_for(job_id, 1),
        "tenant_id": tenant_id,
        "pool": "default",
        "device_type": "cpu",
        "slots": ({"node_id": "node-a", "slot": 0},),
        "granted_at": datetime.now(UTC) - ago,
    }


def trial(job: str) -> JobQueued:
    return JobQueued(
        job_id=job_id_for("default", job),
        request_id=job,
        spec=JobSpec(name="trial", command="true"),
        trial=TrialOf(study_id=STUDY, number=0),
        queued_at=datetime.now(UTC),
    )


def budget(dollars: int, **more: Any) -> BudgetSet:
    spec = {"limit_micro_usd": dollars * 1_000_000, "period": "total", **more}
    return BudgetSet(tenant_id="default", name="vision", spec=BudgetSpec.model_validate(spec))


async def deliver(db: Database, *payloads: Payload) -> list[Payload]:
    events = [
        make_event(each, tenant_id=getattr(each, "tenant_id", "default")) for each in payloads
    ]
    return await handle(db, handlers(BOOK), *events, refusals=REFUSALS)


async def look(db: Database) -> list[Payload]:
    """What one look of the watch emits."""
    before = len(await emitted(db))
    await BudgetWatch(BOOK).look(SimpleNamespace(database=db))
    return [event.payload for event in (await emitted(db))[before:]]


HOUR = timedelta(hours=1)
TEN_SECONDS = timedelta(seconds=10)


async def test_a_budget_is_set_and_a_repetition_does_nothing(database: OpenDatabase) -> None:
    db = await database("cost")
    (changed,) = await deliver(db, budget(100))
    assert isinstance(changed, BudgetChanged)
    assert changed.spec.limit_micro_usd == 100_000_000
    assert await deliver(db, budget(100)) == []
    (again,) = await deliver(db, budget(200))
    assert isinstance(again, BudgetChanged)
    assert again.version > changed.version


async def test_warnings_and_the_limit_are_told_once_and_running_jobs_are_stopped(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    await deliver(db, budget(15, at_limit="stop", warn_percents=[50]), released("one", HOUR))
    (warned,) = await look(db)
    assert isinstance(warned, BudgetReached)
    assert (warned.percent, warned.action, warned.spent_micro_usd) == (50, "warn", 10_000_000)
    assert await look(db) == []

    await deliver(db, granted("two", TEN_SECONDS))
    reached, stop = await look(db)
    assert isinstance(reached, BudgetReached)
    assert (reached.percent, reached.action) == (100, "stop")
    assert reached.spent_micro_usd >= 20_000_000
    assert isinstance(stop, JobStop)
    assert stop.job_id == job_id_for("default", "two")
    assert stop.checkpoint
    assert await look(db) == []

    # A job that was granted before the hold took effect is stopped, too.
    await deliver(db, granted("three", timedelta()))
    (late,) = await look(db)
    assert isinstance(late, JobStop)
    assert late.job_id == job_id_for("default", "three")


async def test_a_higher_limit_releases_and_stops_again_at_the_next_crossing(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    await deliver(db, budget(5, at_limit="stop"), granted("one", TEN_SECONDS))
    assert [type(each) for each in await look(db)] == [BudgetReached, JobStop]
    changed, released_ = await deliver(db, budget(10_000, at_limit="stop"))
    assert isinstance(changed, BudgetChanged)
    assert isinstance(released_, BudgetReleased)
    assert released_.reason == "changed"
    assert await look(db) == []
    await deliver(db, granted("two", timedelta(hours=3)))
    assert [type(each) for each in await look(db)] == [BudgetReached, JobStop, JobStop]


async def test_another_action_at_the_same_limit_takes_effect_at_once(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    await deliver(db, budget(5, at_limit="warn"), granted("one", TEN_SECONDS))
    assert [type(each) for each in await look(db)] == [BudgetReached]
    out = await deliver(db, budget(5, at_limit="hold"))
    assert [type(each) for each in out] == [BudgetChanged, BudgetReleased, BudgetReached]
    assert isinstance(out[-1], BudgetReached)
    assert out[-1].action == "hold"


async def test_a_limit_below_what_is_spent_is_refused_and_changes_nothing(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    await deliver(db, budget(20), released("one", HOUR))
    (refused,) = await deliver(db, budget(10))
    assert isinstance(refused, BudgetRequestRejected)
    assert refused.reason == "already_spent"
    assert refused.errors[0].field == "spec.limit_micro_usd"
    assert "10000000" in refused.errors[0].fix
    await deliver(db, granted("two", TEN_SECONDS))
    (reached,) = await look(db)
    assert isinstance(reached, BudgetReached)
    assert reached.spec.limit_micro_usd == 20_000_000


async def test_a_budget_of_a_study_counts_its_trials_only(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(
        db,
        trial("one"),
        budget(5, study_id=STUDY, at_limit="stop"),
        released("other", HOUR),
        granted("other-two", HOUR),
    )
    assert await look(db) == []
    await deliver(db, released("one", HOUR))
    (reached,) = await look(db)
    assert isinstance(reached, BudgetReached)
    assert reached.spent_micro_usd == 10_000_000


async def test_a_budget_of_a_job_counts_that_job_only(database: OpenDatabase) -> None:
    db = await database("cost")
    job_id = job_id_for("default", "one")
    await deliver(db, budget(5, job_id=job_id), released("other", HOUR))
    assert await look(db) == []
    await deliver(db, released("one", HOUR))
    (reached,) = await look(db)
    assert isinstance(reached, BudgetReached)
    assert reached.spent_micro_usd == 10_000_000


async def test_other_tenants_do_not_count(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(db, budget(5), released("one", HOUR, "other"), granted("two", HOUR, "other"))
    assert await look(db) == []


async def test_only_the_part_in_the_period_counts(database: OpenDatabase) -> None:
    """Held since long before midnight: the budget of the day counts from midnight."""
    db = await database("cost")
    midnight = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    of_three_days = 3 * 86_400
    held = {
        **facts("one", HOUR, "default"),
        "granted_at": midnight - timedelta(days=3),
    }
    await deliver(db, budget(of_three_days, period="day"), AllocationGranted(**held))
    assert await look(db) == []
    end = midnight + timedelta(microseconds=1)
    await deliver(db, AllocationReleased(**held, released_at=end, paid_ends_at=end))
    async with db.connection() as connection:
        rows = await connection.fetch(
            "select day, charged_micro_usd from spend "
            "where subject = '' and isfinite(day) order by day"
        )
    assert len(rows) == 4
    assert sum(row["charged_micro_usd"] for row in rows) == of_three_days * 1_000_000 + 1
    assert rows[-1]["charged_micro_usd"] == 1
    assert await look(db) == []


async def test_a_reversal_takes_off_what_its_charge_had_added(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(db, budget(5), released("one", HOUR))
    assert [type(each) for each in await look(db)] == [BudgetReached]
    async with db.connection() as connection:
        row = await connection.fetchrow("select * from charges")
        assert row is not None
        await reverse(connection)
    (released_,) = await look(db)
    assert isinstance(released_, BudgetReleased)
    assert (released_.reason, released_.spent_micro_usd) == ("corrected", 0)


async def reverse(connection: asyncpg.Connection) -> None:
    from services.cost import store
    from services.cost.core.corrections import reversal

    row = await connection.fetchrow("select * from charges")
    await store.insert_charges(connection, [reversal(store._charge(row))])


async def test_a_removed_budget_is_not_watched(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(db, budget(5), granted("one", HOUR))
    (removed,) = await deliver(db, BudgetRemove(tenant_id="default", name="vision"))
    assert isinstance(removed, BudgetRemoved)
    assert await look(db) == []
    (refused,) = await deliver(db, BudgetRemove(tenant_id="default", name="vision"))
    assert isinstance(refused, BudgetRequestRejected)
    assert refused.reason == "no_such_budget"


@pytest.mark.parametrize("command", [budget(5), BudgetRemove(tenant_id="default", name="vision")])
async def test_another_tenant_s_budget_cannot_be_changed(
    database: OpenDatabase, command: Payload
) -> None:
    db = await database("cost")
    event = make_event(command, tenant_id="other")
    (refused,) = await handle(db, handlers(BOOK), event)
    assert isinstance(refused, BudgetRequestRejected)
    assert (refused.tenant_id, refused.reason) == ("other", "wrong_tenant")


async def test_a_tenant_has_a_hundred_budgets_at_most(database: OpenDatabase) -> None:
    db = await database("cost")
    for number in range(100):
        (changed,) = await deliver(db, budget(100).model_copy(update={"name": f"b{number}"}))
        assert isinstance(changed, BudgetChanged)
    (refused,) = await deliver(db, budget(100))
    assert isinstance(refused, BudgetRequestRejected)
    assert refused.reason == "too_many"


async def test_two_processes_tell_a_crossing_once(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(db, budget(5, at_limit="stop"), granted("one", HOUR))
    one, other = BudgetWatch(BOOK), BudgetWatch(BOOK)
    platform: Any = SimpleNamespace(database=db)
    before = len(await emitted(db))
    due_of_one, due_of_other = await one._due(platform), await other._due(platform)
    assert due_of_one[0].row == due_of_other[0].row
    for watch, dues in ((one, due_of_one), (other, due_of_other)):
        async with db.transaction() as tx:
            await watch._take(tx, dues[0])
    kinds = [type(event.payload) for event in (await emitted(db))[before:]]
    assert kinds == [BudgetReached, JobStop]


async def test_the_spend_of_a_day_is_not_told_of_the_next(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Midnight passes between the reading and the transaction."""
    db = await database("cost")
    await deliver(db, budget(15, at_limit="stop", period="day"), granted("one", 2 * TEN_SECONDS))
    clock = store.now
    moments = []

    async def now(connection: asyncpg.Connection) -> datetime:
        noon = (await clock(connection) - 2 * TEN_SECONDS).replace(hour=12)
        moments.append(noon + timedelta(days=len(moments)))
        return moments[-1]

    monkeypatch.setattr(store, "now", now)
    reached, _ = await look(db)
    assert isinstance(reached, BudgetReached)
    assert reached.period_starts_at == moments[0].replace(hour=0, minute=0, second=0, microsecond=0)


async def test_a_refused_change_uses_up_no_version(database: OpenDatabase) -> None:
    """What is told afterwards is told of the version that is known."""
    db = await database("cost")
    (changed,) = await deliver(db, budget(15, warn_percents=[50]))
    await deliver(db, released("one", HOUR), budget(5))
    (reached,) = await look(db)
    assert isinstance(changed, BudgetChanged)
    assert isinstance(reached, BudgetReached)
    assert reached.version == changed.version


async def test_another_subject_that_has_spent_more_is_refused(database: OpenDatabase) -> None:
    db = await database("cost")
    stops = budget(15, study_id=STUDY, at_limit="stop")
    await deliver(db, stops, released("one", HOUR), released("three", HOUR), granted("two", HOUR))
    (refused,) = await deliver(db, budget(15, at_limit="stop"))
    assert isinstance(refused, BudgetRequestRejected)
    assert refused.reason == "already_spent"
    assert await look(db) == []


async def test_a_trial_of_before_the_upgrade_counts_for_its_study(database: OpenDatabase) -> None:
    """Its job was charged before its study was known."""
    db = await database("cost")
    await deliver(db, budget(5, study_id=STUDY), released("one", HOUR))
    assert await look(db) == []
    job_id = job_id_for("default", "one")
    proposed = TrialProposed(study_id=STUDY, number=0, job_id=job_id, hyperparameters={})
    await deliver(db, proposed, proposed, trial("one"))
    (reached,) = await look(db)
    assert isinstance(reached, BudgetReached)
    assert reached.spent_micro_usd == 10_000_000
    end = datetime.now(UTC)
    await deliver(
        db, AllocationReleased(**{**_second("one"), "released_at": end, "paid_ends_at": end})
    )
    async with db.connection() as connection:
        studied, tenants = [
            await connection.fetchval(
                "select charged_micro_usd from spend where subject = $1 and not isfinite(day)", each
            )
            for each in (STUDY, "")
        ]
    assert studied == tenants > 10_000_000


def _second(job: str) -> dict[str, Any]:
    job_id = job_id_for("default", job)
    held = facts(job, TEN_SECONDS, "default")
    return {**held, "run_id": run_id_for(job_id, 2), "allocation_id": allocation_id_for(job_id, 2)}


async def test_nothing_accrues_after_the_run_s_end(database: OpenDatabase) -> None:
    """The slots are not released yet, but nobody will pay for them."""
    db = await database("cost")
    held = granted("one", 2 * TEN_SECONDS)
    ended = RunSucceeded(
        job_id=held.job_id,
        run_id=held.run_id,
        attempt=1,
        fence=1,
        ended_at=held.granted_at + timedelta(seconds=1),
    )
    await deliver(db, budget(15, at_limit="stop"), held, ended)
    assert await look(db) == []


async def test_one_statement_reads_the_spend_of_all_budgets(
    database: OpenDatabase, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = await database("cost")
    await deliver(
        db,
        budget(25, period="total"),
        budget(25, period="day").model_copy(update={"name": "today"}),
        budget(5, job_id=job_id_for("default", "one")).model_copy(update={"name": "one"}),
        released("one", timedelta(minutes=1)),
    )
    asked = []
    charged = store_spend.charged

    async def counted(connection: asyncpg.Connection, questions: Any) -> Any:
        asked.append(questions)
        return await charged(connection, questions)

    monkeypatch.setattr(store_spend, "charged", counted)
    (reached,) = await look(db)
    assert isinstance(reached, BudgetReached)
    assert reached.name == "one"
    assert [len(questions) for questions in asked] == [3]


@pytest.mark.parametrize("ago", [timedelta(minutes=5), HOUR, timedelta(days=3), timedelta(days=40)])
async def test_it_was_reached_when_the_charges_say_not_when_it_was_noticed(
    database: OpenDatabase, ago: timedelta
) -> None:
    """As after an outage of this service. Other subjects' charges do not count."""
    db = await database("cost")
    studied = budget(15, study_id=STUDY, warn_percents=[])
    first, second = released("one", 2 * ago), released("two", ago)
    others = [released("other", ago / 2), released("one", ago, "other")]
    await deliver(db, studied, trial("one"), trial("two"), first, second, *others)
    (reached,) = await look(db)
    assert isinstance(reached, BudgetReached)
    assert reached.reached_at == second.granted_at + TEN_SECONDS / 2


async def test_it_was_reached_by_what_is_held_and_charged_at_once(database: OpenDatabase) -> None:
    db = await database("cost")
    held, other = granted("one", HOUR), granted("two", HOUR / 2)
    await deliver(db, budget(4000, warn_percents=[50]), held)
    (warned,) = await look(db)
    await deliver(db, other)
    (reached,) = await look(db)
    assert isinstance(warned, BudgetReached)
    assert isinstance(reached, BudgetReached)
    assert warned.reached_at == held.granted_at + timedelta(seconds=2000)
    # A dollar a second, and two from the other's grant on.
    both = (timedelta(seconds=4000) - (other.granted_at - held.granted_at)) / 2
    assert abs(reached.reached_at - other.granted_at - both) <= timedelta(microseconds=1)


async def test_a_budget_forecasts_from_the_hour_in_which_it_was_spent(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    project = budget(100_000, project="robots")
    spec = JobSpec(name="one", command="true", project="robots")
    queued = trial("one").model_copy(update={"spec": spec, "trial": None})
    held = granted("two", HOUR)
    of_two = queued.model_copy(update={"job_id": held.job_id})
    # Its project is known only after its charge.
    await deliver(db, project, released("one", HOUR), held, queued, of_two)
    transport = httpx.ASGITransport(app=read_api(SimpleNamespace(database=db), BOOK))
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        before = datetime.now(UTC)
        (state,) = (await client.get("/budgets/default")).json()["budgets"]
    likely, earliest, latest = (
        datetime.fromisoformat(state[name])
        for name in ("used_up_at", "used_up_earliest", "used_up_latest")
    )
    # 3,610 dollars in an hour, and 3,600 an hour by what runs now.
    left = timedelta(seconds=100_000 - 3_610)
    assert abs(likely - earliest) < timedelta(seconds=1)
    assert abs(likely - (before + left * (3_600 / 3_610))) < timedelta(seconds=30)
    assert abs(latest - (before + left)) < timedelta(seconds=30)


async def test_a_budget_of_a_project_counts_its_jobs(database: OpenDatabase) -> None:
    db = await database("cost")
    spec = JobSpec(name="one", command="true", project="robots")
    queued = trial("one").model_copy(update={"spec": spec, "trial": None})
    await deliver(
        db,
        queued,
        budget(15, project="robots", at_limit="stop"),
        released("other", HOUR),
        granted("other-two", HOUR),
        released("one", HOUR),
    )
    assert await look(db) == []
    await deliver(db, AllocationGranted(**_second("one")))
    reached, stop = await look(db)
    assert isinstance(reached, BudgetReached)
    assert reached.spent_micro_usd >= 20_000_000
    assert isinstance(stop, JobStop)
    assert stop.job_id == job_id_for("default", "one")


async def test_a_budget_has_one_subject() -> None:
    with pytest.raises(ValueError, match="study_id and project are given"):
        budget(15, study_id=STUDY, project="robots")


async def test_a_new_period_without_news_takes_no_transaction(database: OpenDatabase) -> None:
    """At midnight a thousand budgets of a day begin anew: a crossing must not wait for them."""
    db = await database("cost")
    await deliver(db, budget(15, period="day"))
    async with db.connection() as connection:
        await connection.execute("update budgets set period_starts_at = '2026-01-01'")
    platform: Any = SimpleNamespace(database=db)
    assert await BudgetWatch(BOOK)._due(platform) == []
