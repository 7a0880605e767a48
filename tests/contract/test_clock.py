"""The clock's contract, on the fake and on the real one."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, timedelta

import pytest

from services.runtime.clock import Clock, SystemClock
from tests.fakes import ManualClock


@dataclass(frozen=True)
class Case:
    """A clock, and how a test lets some of its time pass."""

    clock: Clock
    let_pass: Callable[[float], Awaitable[None]]


@pytest.fixture(params=["manual", "system"])
def case(request: pytest.FixtureRequest) -> Case:
    if request.param == "manual":
        clock = ManualClock()
        return Case(clock, clock.advance)
    return Case(SystemClock(), asyncio.sleep)


async def asleep(case: Case, seconds: float) -> "asyncio.Task[None]":
    task = asyncio.create_task(case.clock.sleep(seconds))
    await asyncio.sleep(0)
    return task


def test_now_is_aware_utc(case: Case) -> None:
    assert case.clock.now().tzinfo is UTC


async def test_both_hands_move_on(case: Case) -> None:
    now, monotonic = case.clock.now(), case.clock.monotonic()
    await case.let_pass(0.02)
    assert case.clock.monotonic() - monotonic >= 0.019
    assert case.clock.now() - now >= timedelta(seconds=0.019)


async def test_a_sleeper_wakes_after_its_time_and_not_before(case: Case) -> None:
    began = case.clock.monotonic()
    sleeper = await asleep(case, 0.05)
    assert not sleeper.done()
    await case.let_pass(0.05)
    await sleeper
    assert case.clock.monotonic() - began >= 0.05


async def test_sleepers_wake_in_the_order_of_their_times(case: Case) -> None:
    woken: list[str] = []

    async def sleep(name: str, seconds: float) -> None:
        await case.clock.sleep(seconds)
        woken.append(name)

    tasks = [asyncio.create_task(sleep("late", 0.06)), asyncio.create_task(sleep("soon", 0.02))]
    await asyncio.sleep(0)
    for _ in range(4):
        await case.let_pass(0.02)
    await asyncio.gather(*tasks)
    assert woken == ["soon", "late"]


async def test_no_time_is_no_wait(case: Case) -> None:
    await case.clock.sleep(0)
    await case.clock.sleep(-1)


async def test_a_sleeper_can_be_cancelled(case: Case) -> None:
    sleeper = await asleep(case, 1000)
    sleeper.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sleeper
