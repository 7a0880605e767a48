"""Calls of a launcher: several at a time, none without a limit."""

import asyncio

import pytest

from services.scheduler.launchers import calls
from services.scheduler.launchers.base import LauncherUnavailable


async def test_calls_run_side_by_side_up_to_a_limit_and_keep_their_order():
    running = most = 0

    async def call(number: int) -> int:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1
        return number

    found = await calls.each([lambda number=number: call(number) for number in range(1000)])
    assert found == list(range(1000))
    assert most == calls.MAX_AT_ONCE


async def test_a_call_without_an_answer_ends_and_the_rest_is_left_out(monkeypatch):
    monkeypatch.setattr(calls, "CALL_SECONDS", 0.01)
    begun = []

    async def hang() -> bool:
        begun.append(1)
        await asyncio.get_running_loop().create_future()
        return True

    assert await calls.each([hang] * 1000) == [None] * 1000
    # None at all where the machine was busy for as long as one call may take.
    assert len(begun) <= calls.MAX_AT_ONCE


async def test_what_a_launcher_may_not_raise_is_raised_as_it_is():
    async def bug() -> None:
        raise KeyError("a bug")

    with pytest.raises(KeyError, match="a bug"):
        await calls.each([bug, bug])


async def test_a_timeout_of_the_launcher_s_own_is_no_answer_too():
    async def refused() -> None:
        raise TimeoutError

    with pytest.raises(LauncherUnavailable):
        await calls.limited(refused())
