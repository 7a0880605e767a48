"""Reports of pools, of jobs and over time agree to the micro-dollar, whatever happened."""

import json
import random
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import allocation_id_for, job_id_for, run_id_for
from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved
from drivetrain_schemas.runs import RunFailed, RunStarted
from services.cost.api import read_api
from services.cost.core.prices import Price, PriceBook
from services.cost.corrections import Corrections
from services.cost.handlers import handlers
from services.cost.pools import Sharing
from services.runtime.database import Database
from tests.conftest import OpenDatabase
from tests.events import handle
from tests.handlers.cost.test_pools import at

MIDNIGHT = datetime(2026, 2, 1, tzinfo=UTC)
HOUR = timedelta(hours=1)
BEGIN, END = MIDNIGHT - 10 * HOUR, MIDNIGHT + 30 * HOUR
DAYS = {"first": "2026-01-31", "last": "2026-02-02"}
# Odd prices, which change at odd moments, so that much is rounded.
OTHERS = (
    Price("a", "gpu", MIDNIGHT - 90 * HOUR, 2_500_001),
    Price("b", "gpu", MIDNIGHT + timedelta(seconds=31_234.567891), 3_333_337),
)
SPOT = Price("s", "gpu", MIDNIGHT - 90 * HOUR, 777_773, is_spot=True)
BOOK = PriceBook((*OTHERS, SPOT))
SLOTS = [(node, number) for node in ("a", "s") for number in range(3)]


def history(chance: random.Random) -> list[Event[Any]]:
    """Of two nodes, one of them spot, which goes and comes back with a slot less."""
    node = NodeRegistered(node_id="a", pool="default", device_type="gpu", num_slots=3)
    spot = node.model_copy(update={"node_id": "s", "is_spot": True})
    fewer = spot.model_copy(update={"num_slots": 2})
    gone = NodeRemoved(node_id="s", reason="gone")
    nodes = [at(node, BEGIN), at(spot, BEGIN), at(gone, MIDNIGHT), at(fewer, MIDNIGHT + 9 * HOUR)]
    held = [event for of_job in jobs(chance) for event in of_job]
    again = [at(event.payload, event.occurred_at) for event in chance.sample(held, len(held) // 4)]
    chance.shuffle(held)
    return [*nodes, *held, *again]


def jobs(chance: random.Random) -> Iterator[list[Event[Any]]]:
    """No slot is held twice at a time; some for no time, some just to a midnight or beyond it."""
    free = dict.fromkeys(SLOTS, BEGIN)
    while True:
        slots = chance.sample(SLOTS, chance.randint(1, 4))
        begin = max(free[slot] for slot in slots) + timedelta(microseconds=chance.randrange(10**9))
        end = begin + timedelta(microseconds=chance.choice([0, 1, chance.randrange(4 * 10**10)]))
        if chance.random() < 0.2:
            midnight = begin.replace(hour=0, minute=0, second=0, microsecond=0) + 24 * HOUR
            end = midnight + timedelta(microseconds=chance.choice([-1, 0, 1]))
        if end > END:
            return
        free |= dict.fromkeys(slots, end)
        yield job(chance, slots, begin, end)


def job(
    chance: random.Random, slots: list[tuple[str, int]], begin: datetime, end: datetime
) -> list[Event[Any]]:
    tenant_id = chance.choice(["vision", "speech"])
    job_id = job_id_for(tenant_id, str(chance.random()))
    facts = {"job_id": job_id, "run_id": run_id_for(job_id, 1), "attempt": 1, "fence": 1}
    held: dict[str, Any] = {
        **facts,
        "allocation_id": allocation_id_for(job_id, 1),
        "tenant_id": tenant_id,
        "pool": "default",
        "device_type": "gpu",
        "slots": tuple({"node_id": node, "slot": number} for node, number in slots),
        "granted_at": begin,
        "spot_nodes": ("s",) if any(node == "s" for node, _ in slots) else (),
    }
    paid = begin + (end - begin) * chance.choice([0, 0.5, 1])
    return [
        at(AllocationGranted(**held), begin),
        at(RunStarted(**facts, started_at=begin + (end - begin) * chance.random()), begin),
        at(RunFailed(**facts, exit_code=1, last_log="", ended_at=paid), paid),
        at(AllocationReleased(**held, paid_ends_at=paid, released_at=end), end),
    ]


async def views(db: Database, book: PriceBook) -> list[dict[str, int]]:
    """The money of each day, as each view tells it."""
    clock = SimpleNamespace(now=lambda: END)
    platform: Any = SimpleNamespace(database=db, clock=clock)
    found = []
    transport = httpx.ASGITransport(read_api(platform, book))
    async with httpx.AsyncClient(transport=transport, base_url="http://cost") as client:
        answer = await client.get("/pools/vision", params=DAYS)
        found.append(sums((share["day"], share["micro_usd"]) for share in answer.json()["shares"]))
        for by in ("job", "tenant"):
            answer = await client.get("/chargeback/vision", params={**DAYS, "by": by})
            *lines, _ = map(json.loads, answer.text.splitlines())
            found.append(sums((line["day"], line["micro_usd"]) for line in lines))
        for by, step in (("use", "hour"), ("job", "day")):
            answer = await client.get("/fleet/vision", params={**DAYS, "by": by, "step": step})
            fleet = answer.json()
            days = [moment[:10] for moment in fleet["starts_at"]]
            points = (zip(days, each["micro_usd"], strict=True) for each in fleet["series"])
            found.append(sums(point for of_series in points for point in of_series))
    async with db.connection() as connection:
        charged = await connection.fetchval("select sum(amount_micro_usd) from charges")
        spent = await connection.fetchval(
            "select sum(charged_micro_usd) from spend where subject = '' and day > '-infinity'"
        )
    assert sum(line["micro_usd"] for line in lines if line["tenant_id"]) == charged == spent
    return found


def sums(amounts: Any) -> dict[str, int]:
    found: Counter[str] = Counter()
    for day, micro_usd in amounts:
        found[day] += micro_usd
    return dict(found)


@pytest.mark.parametrize("is_shared", [False, True])
async def test_all_views_of_a_pool_s_money_agree(database: OpenDatabase, is_shared: bool) -> None:
    """Some slots had no price at first."""
    db = await database("cost")
    earlier = PriceBook((SPOT,))
    await handle(db, handlers(earlier), *history(random.Random(is_shared)))
    platform: Any = SimpleNamespace(database=db)
    if is_shared:
        assert await Sharing(earlier).share(platform, timedelta()) > 0
    first, *others = await views(db, earlier)
    assert first.keys() == {"2026-01-31", "2026-02-01", "2026-02-02"}
    assert others == [first] * 4
    assert await Corrections(BOOK).reprice(platform) > 0
    first, *others = await views(db, BOOK)
    assert others == [first] * 4
    await Sharing(BOOK).share(platform, timedelta())
    assert await views(db, BOOK) == [first] * 5
