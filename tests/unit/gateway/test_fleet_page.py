"""Slots over time: lines in the order of their bars, and texts of hours and days."""

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from services.gateway.core.fleet_page import (
    HOURS_SINCE,
    By,
    Line,
    Step,
    has_hours,
    lines,
    picture,
    time_text,
)

HOUR = 3_600_000_000
AT = datetime(2026, 1, 2, 9, tzinfo=UTC)


def of(kind: str, *times: int, holder: str | None = None, name: str | None = None) -> Any:
    return {"kind": kind, "holder": holder, "name": name} | {
        "slot_microseconds": times,
        "micro_usd": (2,) * len(times),
    }


def test_uses_of_all_pools_are_added_and_stand_in_their_order() -> None:
    found = lines([of("idle", 1, 2), of("productive", 5, 0), of("idle", 10, 20)], "use")
    assert found == [
        Line("productive", "use-productive", [5, 0], 4),
        Line("idle", "use-idle", [11, 22], 8),
    ]
    assert found[1].total == 33


def test_the_largest_holder_is_lowest_and_others_platform_and_idle_are_above() -> None:
    series = [
        of("idle", 99),
        of("platform", 1),
        of("others", 50),
        of("held", 3, holder="b"),
        of("held", 3, holder="a"),
        of("held", 7, holder="c", name="digits"),
        of("held", 1),
    ]
    assert [(line.name, line.style) for line in lines(series, "job")] == [
        ("digits", "holder-1"),
        ("a", "holder-2"),
        ("b", "holder-3"),
        ("no job", "holder-4"),
        ("others", "use-others"),
        ("platform", "use-platform"),
        ("idle", "use-idle"),
    ]


@pytest.mark.parametrize(
    ("by", "holder", "address"),
    [
        ("job", "job_a", "/jobs/job_a"),
        ("project", "a/b", "/?project=a%2Fb"),
        ("tenant", "team", ""),
        ("job", None, ""),
    ],
)
def test_a_job_and_a_project_have_a_page(by: By, holder: str | None, address: str) -> None:
    [line] = lines([of("held", 1, holder=holder)], by)
    assert line.address == address


def test_each_hour_has_a_bar() -> None:
    found = picture(
        (AT, AT + timedelta(hours=1)), lines([of("idle", HOUR, 2 * HOUR)], "use"), "hour"
    )
    assert [(piece.x, piece.height, piece.label) for piece in found.pieces] == [
        (0, 60.0, "Jan 2, 09:00: 1.0 slot hours idle"),
        (20, 120.0, "Jan 2, 10:00: 2.0 slot hours idle"),
    ]


@pytest.mark.parametrize(("step", "text"), [("hour", "Jan 2, 09:00"), ("day", "Jan 2")])
def test_the_text_of_a_moment_is_as_fine_as_its_step(step: Step, text: str) -> None:
    assert time_text(AT, step) == text


def test_hours_are_known_of_the_last_days_alone() -> None:
    today = date(2026, 3, 1)
    assert has_hours(today - HOURS_SINCE, today)
    assert not has_hours(today - HOURS_SINCE - timedelta(days=1), today)
