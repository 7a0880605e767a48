"""The lines of a pool's day add up to what its nodes offered."""

from datetime import date

from services.cost.core.chargeback import Capacity, Line, Report
from services.cost.core.phases import Amount
from services.cost.core.pools import PoolTime

SPOT, ON_DEMAND = Capacity.SPOT, Capacity.ON_DEMAND


def of(day: int, pool: str = "a") -> PoolTime:
    return PoolTime.of_day(date(2026, 2, day), pool, "gpu")


def line(day: int, job_id: str, capacity: Capacity = ON_DEMAND, pool: str = "a") -> Line:
    return Line(of(day, pool), "productive", capacity, "vision", job_id=job_id)


def idle(day: int, capacity: Capacity = ON_DEMAND, pool: str = "a") -> Line:
    return Line(of(day, pool), "idle", capacity)


def lines(report: Report, table: list[tuple[Line, Amount]]) -> list[tuple[Line, Amount]]:
    found = [each for line, amount in table for each in report.add(line, amount)]
    return [*found, *report.end()]


def test_a_day_ends_with_what_was_idle_before_the_next_begins() -> None:
    report = Report(
        {
            (of(1), ON_DEMAND): Amount(100, 1_000),
            (of(1), SPOT): Amount(50, 100),
            (of(2), ON_DEMAND): Amount(100, 1_000),
        },
        {},
    )
    table = [(line(1, "x"), Amount(60, 600)), (line(2, "x"), Amount(100, 1_000))]
    assert lines(report, table) == [
        table[0],
        (idle(1), Amount(40, 400)),
        (idle(1, SPOT), Amount(50, 100)),
        table[1],
    ]


def test_what_is_held_now_is_added_to_its_line_or_follows_those_of_the_day() -> None:
    live = {
        line(1, "z"): Amount(5, 50),
        line(1, "x"): Amount(1, 10),
        line(1, "y"): Amount(4, 40),
        line(3, "x"): Amount(7, 70),
    }
    report = Report({(of(1), ON_DEMAND): Amount(100, 1_000)}, live)
    assert lines(report, [(line(1, "x"), Amount(60, 600))]) == [
        (line(1, "x"), Amount(61, 610)),
        (line(1, "y"), Amount(4, 40)),
        (line(1, "z"), Amount(5, 50)),
        (idle(1), Amount(30, 300)),
        (line(3, "x"), Amount(7, 70)),
    ]


def test_pools_of_a_day_follow_by_name() -> None:
    whole = {(of(1, pool), ON_DEMAND): Amount(9, 90 - number) for number, pool in enumerate("cab")}
    assert [line.of.pool for line, _ in Report(whole, {}).end()] == ["a", "b", "c"]


def test_a_full_capacity_has_no_idle_line() -> None:
    whole = {(of(1), ON_DEMAND): Amount(100, 1_000), (of(1), SPOT): Amount(50, 100)}
    full = (line(1, "x"), Amount(100, 1_000))
    assert lines(Report(whole, {}), [full]) == [full, (idle(1, SPOT), Amount(50, 100))]


def test_where_more_was_held_of_a_capacity_than_offered_idle_is_one_line() -> None:
    whole = {(of(1), ON_DEMAND): Amount(100, 1_000), (of(1), SPOT): Amount(50, 100)}
    held = [(line(1, "x"), Amount(10, 100)), (line(1, "y", SPOT), Amount(51, 102))]
    assert lines(Report(whole, {}), held) == [
        *held,
        (idle(1, Capacity.UNKNOWN), Amount(89, 898)),
    ]
