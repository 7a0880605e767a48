"""The ledger against ground truth: `python -m benchmarks.ledger`.

Made intervals (kinds of slots, odd prices that change, ends of pods before the release, times to
the microsecond) are charged by the service's own code, and by whole numbers of numpy that know
nothing of it: a product is split into multiples of an hour and a rest, so that no step leaves 64
bits. Both must be the same in every charge, the difference exactly 0. Some of the intervals go
through the handler into Postgres as well; there the charges, the spend of tenants and jobs and the
shares of pools must have the same sums.
"""

import asyncio
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.report import Row, arguments, options_of, publish
from drivetrain_schemas.allocations import AllocationReleased, SlotRef
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import job_id_for, run_id_for
from services.cost.core.charges import Usage, charges
from services.cost.core.prices import Price, PriceBook
from services.cost.handlers import batch_handler
from services.cost.pools import Sharing
from services.runtime import logs
from services.runtime.database import Database
from services.runtime.transaction import Origin
from services.standalone.embedded import running_postgres

TITLE = "The ledger"
MEASURES = (
    "services/cost/core/charges.py",
    "services/cost/core/pools.py",
    "services/cost/core/prices.py",
    "services/cost/handlers.py",
    "services/cost/pools.py",
    "services/cost/store.py",
)
NOTES = """
Intervals of three kinds of slots with odd prices that change, priced by the service's code in one
process, and each charge compared; a part of them also goes through the handler into Postgres,
where charges, spend of tenants and jobs and shares of pools are compared. The truth is worked out
by whole numbers of numpy that share no code with the service; the rates are of the service's part
only, without Kafka.
"""

EPOCH = datetime(2026, 1, 1, tzinfo=UTC)
HOUR = 3_600_000_000
DAY = 24 * HOUR
KINDS = ("cpu", "gpu", "tpu")
# By kind: from this microsecond since EPOCH, this many micro-dollars for a slot and hour.
PRICES: dict[str, tuple[tuple[int, int], ...]] = {
    "cpu": ((0, 48_000), (3 * DAY + 1, 48_001)),
    "gpu": ((0, 2_500_000), (2 * DAY + 7 * HOUR + 123_457, 2_499_999), (5 * DAY, 3_333_333)),
    "tpu": ((0, 7_777_777), (4 * DAY + 999_999, 1), (4 * DAY + 1_000_000, 9_999_991)),
}
BOOK = PriceBook(
    tuple(
        Price(f"{kind}-{number}", kind, EPOCH + timedelta(microseconds=first), price)
        for kind, of_kind in PRICES.items()
        for number, (first, price) in enumerate(of_kind)
    )
)
_CHUNK = 200_000
_BATCH = 500
INTERVALS, STORED = 10_000_000, 100_000


@dataclass(frozen=True, slots=True)
class Intervals:
    """One column each; times are microseconds since EPOCH."""

    kind: np.ndarray
    slots: np.ndarray
    start: np.ndarray
    paid: np.ndarray
    end: np.ndarray


def make(number: int, seed: int) -> Intervals:
    """Half of the lengths are seconds, half days; many end on the microsecond of a change."""
    random = np.random.default_rng(seed)
    start = random.integers(0, 7 * DAY, number)
    short = random.integers(0, 90_000_000, number)
    length = np.where(random.random(number) < 0.5, short, random.integers(0, 3 * DAY, number))
    end = start + length
    edges = np.array([first for of_kind in PRICES.values() for first, _ in of_kind])
    on_edge = random.choice(edges, number)
    end = np.where((random.random(number) < 0.05) & (on_edge >= start), on_edge, end)
    tail = random.integers(0, 20_000_000, number)
    paid = np.where(random.random(number) < 0.3, end - tail, end)
    slots = random.choice(np.array([1, 1, 2, 3, 8, 64, 1024]), number)
    return Intervals(
        random.integers(0, len(KINDS), number), slots, start, np.maximum(paid, start), end
    )


def truth(of: Intervals) -> tuple[np.ndarray, np.ndarray]:
    """What is charged and what the platform pays, each as (interval, price of its kind)."""
    size = (len(of.kind), max(map(len, PRICES.values())))
    paid, platform = np.zeros(size, np.int64), np.zeros(size, np.int64)
    for number, kind in enumerate(KINDS):
        rows = np.flatnonzero(of.kind == number)
        for column, (first, price) in enumerate(PRICES[kind]):
            later = PRICES[kind][column + 1 :]
            last = later[0][0] if later else np.iinfo(np.int64).max
            begin = np.maximum(of.start[rows], first)
            end = np.minimum(of.end[rows], last)
            edge = np.clip(of.paid[rows], begin, np.maximum(begin, end))
            paid[rows, column] = money(of.slots[rows], edge - begin, price)
            platform[rows, column] = money(of.slots[rows], end - edge, price)
    return paid, platform


def money(slots: np.ndarray, microseconds: np.ndarray, price: int) -> np.ndarray:
    """slots x time x price / hour, rounded half to even."""
    hours, rest = np.divmod(slots * np.maximum(microseconds, 0), HOUR)
    whole, rest = np.divmod(rest * price, HOUR)
    whole += hours * price
    above = (2 * rest > HOUR) | ((2 * rest == HOUR) & (whole % 2 == 1))
    rounded: np.ndarray = whole + above
    return rounded


def usages(of: Intervals, first: int) -> Iterator[Usage]:
    columns = (of.kind, of.slots, of.start, of.paid, of.end)
    for number, (kind, slots, start, paid, end) in enumerate(
        zip(*(column.tolist() for column in columns), strict=True)
    ):
        yield Usage(
            f"alloc-{first + number}", "default", KINDS[kind], slots, at(start), at(paid), at(end)
        )


def at(microseconds: int) -> datetime:
    return EPOCH + timedelta(microseconds=microseconds)


@dataclass(slots=True)
class Compared:
    """`difference`: the sum of the differences of all charges, without their signs."""

    num_charges: int = 0
    difference: int = 0
    seconds: float = 0.0


def compare(number: int, seed: int) -> Compared:
    """Charge this many intervals, and compare each charge with the truth."""
    found = Compared()
    for first in range(0, number, _CHUNK):
        made = make(min(_CHUNK, number - first), seed + first)
        paid, platform = truth(made)
        held = list(usages(made, first))
        began = time.perf_counter()
        charged = [charges(usage, BOOK) for usage in held]
        found.seconds += time.perf_counter() - began
        for row, of_usage in enumerate(charged):
            for charge in of_usage:
                column = int(charge.period.price_id.rpartition("-")[2])
                paid[row, column] -= charge.amount_micro_usd
                platform[row, column] -= charge.platform_micro_usd
            found.num_charges += len(of_usage)
        # What is left also has what was not charged at all.
        found.difference += int(np.abs(paid).sum()) + int(np.abs(platform).sum())
    return found


def releases(of: Intervals) -> Iterator[Event[AllocationReleased]]:
    """As the scheduler tells them, of a hundred jobs of ten tenants."""
    for number, usage in enumerate(usages(of, 0)):
        tenant_id = f"tenant-{number % 10}"
        job_id = job_id_for(tenant_id, str(number % 100))
        released = AllocationReleased.model_construct(
            job_id=job_id,
            run_id=run_id_for(job_id, number + 1),
            attempt=number + 1,
            fence=1,
            allocation_id=f"alloc_{job_id.removeprefix('job_')}_{number + 1}",
            tenant_id=tenant_id,
            pool="default",
            device_type=usage.device_type,
            slots=(SlotRef(node_id="node", slot=0),) * usage.num_slots,
            granted_at=usage.starts_at,
            paid_ends_at=usage.paid_ends_at,
            released_at=usage.ends_at,
        )
        yield Event(f"event-{number}", "/benchmark", usage.ends_at, tenant_id, released)


async def store(number: int, seed: int) -> tuple[Compared, dict[str, int]]:
    """The intervals through the handler into Postgres; the sums of its tables beside the truth."""
    made = make(number, seed)
    paid, platform = truth(made)
    events = list(releases(made))
    found = Compared()
    with tempfile.TemporaryDirectory() as name:
        async with running_postgres(Path(name)) as postgres:
            database = Database(postgres.dsn, "cost", Origin("/drivetrain/cost", "drivetrain."))
            await database.open(["services.cost"])
            handle = batch_handler(BOOK)
            began = time.perf_counter()
            for first in range(0, number, _BATCH):
                async with database.transaction() as tx:
                    await handle(tx, events[first : first + _BATCH])
            found.seconds = time.perf_counter() - began
            at_rest: Any = SimpleNamespace(database=database)
            while await Sharing(BOOK).share(at_rest, timedelta()):
                pass
            sums, found.num_charges = await _sums(database)
            await database.close()
    want = {"charged": int(paid.sum()), "platform": int(platform.sum())}
    differences = {name: sums[name] - want[name.rpartition("_")[2]] for name in sums}
    found.difference = sum(map(abs, differences.values()))
    return found, differences


async def _sums(database: Database) -> tuple[dict[str, int], int]:
    statements = {
        "charges_charged": "select sum(amount_micro_usd) from charges",
        "charges_platform": "select sum(platform_micro_usd) from charges",
        "tenants_charged": "select sum(charged_micro_usd) from spend "
        "where subject = '' and isfinite(day)",
        "jobs_charged": "select sum(charged_micro_usd) from spend "
        "where subject like 'job_%' and not isfinite(day)",
        "shares_charged": "select sum(micro_usd) from job_shares where tenant_id <> ''",
        "shares_platform": "select sum(micro_usd) from pool_shares where kind = 'platform'",
    }
    async with database.connection() as connection:
        number = await connection.fetchval("select count(*) from charges")
        return {
            name: int(await connection.fetchval(statement))
            for name, statement in statements.items()
        }, number


def main() -> None:
    parser = arguments("The ledger against ground truth")
    parser.add_argument("--intervals", type=int, default=INTERVALS)
    parser.add_argument("--stored", type=int, default=STORED, help="of them through Postgres")
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    is_whole = wanted.intervals >= INTERVALS and wanted.stored >= STORED
    given = options_of("ledger", wanted, is_whole=is_whole)
    logs.configure("bench", "error")
    divisor = 100 if given.quick else 1
    computed = compare(wanted.intervals // divisor, wanted.seed)
    stored, differences = asyncio.run(store(max(1, wanted.stored // divisor), wanted.seed))
    rows = [
        _row("ledger_computed", "charges computed", computed),
        _row("ledger_stored", "the same through the handler into Postgres", stored),
    ]
    publish(rows, given, ["numpy", "asyncpg"])
    if any(differences.values()):
        raise SystemExit(f"sums that differ: {differences}")


def _row(name: str, what: str, found: Compared) -> Row:
    return Row(
        id=name,
        what=f"{what}: {found.num_charges:,} at {found.num_charges / found.seconds:,.0f} /s",
        ours=f"{found.difference} micro-dollars of difference",
        peer="ground truth",
        ratio=1.0 if found.difference == 0 else 0.0,
        target="exactly 0",
        met=found.difference == 0,
    )


if __name__ == "__main__":
    main()
