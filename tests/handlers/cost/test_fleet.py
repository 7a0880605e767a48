"""Who had the slots hour by hour: from the same events as the days, and adding up to them."""

from collections import Counter
from datetime import date, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import allocation_id_for, job_id_for, run_id_for
from drivetrain_schemas.nodes import NodeRegistered
from drivetrain_schemas.runs import RunStarted
from services.cost.api import read_api
from services.cost.core.fleet import By
from services.cost.core.prices import Price, PriceBook
from services.cost.core.steps import Step, days
from services.cost.corrections import Corrections
from services.cost.fleet import Ask, fleet
from services.cost.handlers import handlers
from services.cost.pools import Sharing, report
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.events import handle, make_event
from tests.fakes import ManualClock
from tests.handlers.cost.test_pools import NOON

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
DAYS = (NOON.date(), NOON.date() + timedelta(days=1))
NOW = NOON + 20 * HOUR + 20 * MINUTE
# Awkward prices, and a change in the middle of an hour: nothing divides.
BOOK = PriceBook(
    (
        Price("old", "gpu", NOON - timedelta(days=30), 2_500_001),
        Price("new", "gpu", NOON + 7 * HOUR + 13 * MINUTE, 3_333_333),
    )
)


def held(
    name: str, hours: float, tenant_id: str = "vision", released: bool = True
) -> list[Payload]:
    """A job on the slot of its name, from noon; its run starts seven minutes later."""
    job_id = job_id_for(tenant_id, name)
    run = {"job_id": job_id, "run_id": run_id_for(job_id, 1), "attempt": 1, "fence": 1}
    granted = {
        **run,
        "allocation_id": allocation_id_for(job_id, 1),
        "tenant_id": tenant_id,
        "pool": "default",
        "device_type": "gpu",
        "slots": ({"node_id": "a", "slot": 0},),
        "granted_at": NOON,
    }
    end = NOON + hours * HOUR
    found: list[Payload] = [
        AllocationGranted(**granted),
        RunStarted(**run, started_at=NOON + 7 * MINUTE),
    ]
    if released:
        over = AllocationReleased(**granted, paid_ends_at=end - 3 * MINUTE, released_at=end)
        found.append(over)
    return found


async def deliver(db: Database, *payloads: Payload, book: PriceBook = BOOK) -> None:
    events: list[Event[Any]] = []
    for payload in payloads:
        event = make_event(payload, tenant_id="vision")
        events.append(Event(event.event_id, event.source, NOON, event.tenant_id, event.payload))
    await handle(db, handlers(book), *events)


async def fleet_of(
    db: Database, by: By, step: Step = Step.HOUR
) -> dict[tuple[str, str], dict[Any, Any]]:
    """By kind and holder."""
    async with db.connection() as connection:
        ask = Ask("vision", days(*DAYS, step), by)
        found = await fleet(connection, BOOK, ask, NOW)
    return {(of.kind, of.holder): dict(points) for of, points in found.series}


async def story(db: Database) -> None:
    node = NodeRegistered(node_id="a", pool="default", device_type="gpu", num_slots=4)
    await deliver(db, node, *held("one", 14.1), *held("two", 9.7))
    await deliver(db, *held("theirs", 3.3, tenant_id="speech"), *held("open", 0, released=False))
    async with db.connection() as connection:
        await connection.execute(
            "insert into jobs (job_id, project, name) values ($1, 'cars', 'one') "
            "on conflict (job_id) do update set project = 'cars', name = 'one'",
            job_id_for("vision", "one"),
        )


def platform(db: Database) -> Any:
    return SimpleNamespace(database=db, clock=ManualClock(start=NOW))


async def share(db: Database) -> int:
    return await Sharing(BOOK).share(platform(db), timedelta())


async def both(db: Database) -> tuple[Counter[Any], Counter[Any]]:
    """Time and money of each use of each day: as its hours say, and as the days say."""
    of_hours: Counter[Any] = Counter()
    for (kind, _), points in (await fleet_of(db, By.USE)).items():
        for begin, amount in points.items():
            of_hours[begin.date(), kind, "time"] += amount.slot_microseconds
            of_hours[begin.date(), kind, "money"] += amount.micro_usd
    of_days: Counter[Any] = Counter()
    async with db.connection() as connection:
        for row in await report(connection, BOOK, *DAYS, NOW):
            of_days[row.of.day, row.kind, "time"] += row.slot_microseconds
            of_days[row.of.day, row.kind, "money"] += row.micro_usd
    return of_hours, of_days


@pytest.mark.parametrize("num_shared", [0, 2, 3])
async def test_the_hours_of_a_day_add_up_to_its_rows_exactly(
    database: OpenDatabase, num_shared: int
) -> None:
    db = await database("cost")
    await story(db)
    async with db.connection() as connection:  # the others are shared out later
        await connection.execute(
            """update allocations set release_noted_at = 'infinity' where allocation_id in (
                select allocation_id from allocations where released_at is not null
                order by released_at limit $1)""",
            3 - num_shared,
        )
    assert await share(db) == num_shared
    of_hours, of_days = await both(db)
    assert of_hours == of_days
    kinds = {kind for _, kind, _ in of_days}
    assert kinds == {"starting", "productive", "platform", "idle"}
    whole = sum(value for (_, _, what), value in of_days.items() if what == "time")
    assert whole == 4 * int((NOW - NOON).total_seconds()) * 1_000_000


@pytest.mark.parametrize("is_shared", [False, True])
async def test_an_hour_is_split_by_holder(database: OpenDatabase, is_shared: bool) -> None:
    db = await database("cost")
    await story(db)
    if is_shared:
        await share(db)
    for by in By:
        points = await fleet_of(db, by)
        times = {key: of[NOON].slot_microseconds / 3_600_000_000 for key, of in points.items()
                 if NOON in of}  # fmt: skip
        assert sum(times.values()) == 4.0
        if by is By.PROJECT:
            assert times == {("held", "cars"): 1.0, ("held", ""): 2.0, ("others", ""): 1.0}
        if by is By.TENANT:
            assert times == {("held", "vision"): 3.0, ("others", ""): 1.0}
        if by is By.JOB:
            mine = [("held", job_id_for("vision", name)) for name in ("one", "two", "open")]
            assert times == {**dict.fromkeys(mine, 1.0), ("others", ""): 1.0}
            assert next(iter(points)) == ("held", job_id_for("vision", "open"))  # the largest
        if by is By.USE:
            assert times["starting", ""] == pytest.approx(4 * 7 / 60)
        by_day = await fleet_of(db, by, Step.DAY)
        assert points.keys() == by_day.keys()
        for key, of in points.items():
            hours, of_days = list(of.values()), list(by_day[key].values())
            for field in ("slot_microseconds", "micro_usd"):
                total = sum(getattr(amount, field) for amount in hours)
                assert total == sum(getattr(amount, field) for amount in of_days)


async def test_hours_that_are_priced_later_cost_their_share(database: OpenDatabase) -> None:
    db = await database("cost")
    await deliver(db, *held("one", 14.1), book=PriceBook(()))
    assert await Sharing(PriceBook(())).share(platform(db), timedelta()) == 1
    assert await Corrections(BOOK).reprice(platform(db)) == 1
    of_hours, of_days = await both(db)
    assert of_hours == of_days
    assert of_days[NOON.date(), "productive", "money"] > 0


async def test_the_largest_holders_are_named_and_the_others_are_one(
    database: OpenDatabase,
) -> None:
    db = await database("cost")
    async with db.connection() as connection:
        await connection.execute(
            """insert into job_hours select $1::timestamptz + hour * interval '1 hour', 'default',
                'gpu', 'vision', 'job_' || lpad(job::text, 3, '0'), 'productive', job, 1
            from generate_series(-2000, 2000) as hour, generate_series(1, 20) as job""",
            NOON,
        )
        await connection.execute("analyze job_hours")
    points = await fleet_of(db, By.JOB)
    largest = [("held", f"job_{number:03}") for number in range(20, 12, -1)]
    assert list(points) == [*largest, ("others", "")]
    assert points["others", ""][NOON].slot_microseconds == sum(range(1, 13))


async def ask(db: Database, today: date, **query: Any) -> httpx.Response:
    at_noon = platform(db)
    at_noon.clock = ManualClock(start=NOON.replace(month=today.month, day=today.day))
    app: Any = read_api(at_noon, BOOK)
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        wanted = {"first": DAYS[0], "last": DAYS[1], "step": "hour", "by": "use", **query}
        return await client.get(
            "/fleet/vision", params={name: str(value) for name, value in wanted.items()}
        )


async def test_the_answer_has_a_value_for_each_hour(database: OpenDatabase) -> None:
    db = await database("cost")
    await story(db)
    answer = (await ask(db, NOON.date(), pool="default")).json()
    assert answer["pools"] == ["default"]
    assert answer["starts_at"][:2] == ["2026-02-01T00:00:00Z", "2026-02-01T01:00:00Z"]
    assert len(answer["starts_at"]) == 48
    for series in answer["series"]:
        assert len(series["slot_microseconds"]) == len(series["micro_usd"]) == 48
    empty = (await ask(db, NOON.date(), pool="lab")).json()
    assert (empty["series"], empty["pools"]) == ([], ["default"])


@pytest.mark.parametrize(
    ("query", "detail"),
    [
        ({"last": DAYS[0] + timedelta(days=7)}, "a day from first to 6 days later"),
        ({"last": DAYS[0] - timedelta(days=1)}, "a day from first to 6 days later"),
        ({"step": "day", "last": DAYS[0] + timedelta(days=92)}, "from first to 91 days later"),
        ({}, "hours are kept since 2026-02-05: write step=day"),
    ],
)
async def test_too_long_a_time_is_refused(
    database: OpenDatabase, query: dict[str, Any], detail: str
) -> None:
    db = await database("cost")
    answer = await ask(db, date(2026, 3, 12), **query)
    assert answer.status_code == 422
    assert detail in answer.json()["detail"]
