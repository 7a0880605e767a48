"""Calls of a launcher: each with a time limit, several at a time.

A launcher that does not answer must not hold up the loop: what takes too long counts as
unavailable, and after as long as one call may take the calls that have not begun are left out.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from services.scheduler.launchers.base import LauncherUnavailable

T = TypeVar("T")

CALL_SECONDS = 10.0
MAX_AT_ONCE = 32


async def limited(call: Awaitable[T]) -> T:
    """Its result. Raises LauncherUnavailable, and what it raises itself."""
    try:
        async with asyncio.timeout(CALL_SECONDS):
            return await call
    except TimeoutError as error:
        raise LauncherUnavailable(f"no answer within {CALL_SECONDS:g} s") from error


async def each(calls: Sequence[Callable[[], Awaitable[T]]]) -> list[T | None]:
    """The results in order; None for calls that were left out or found the launcher unavailable.
    Takes twice the limit of one call at most.

    Raises what the first call raises otherwise; the others are cancelled.
    """
    found: list[T | None] = [None] * len(calls)
    left = iter(enumerate(calls))
    clock = asyncio.get_running_loop().time
    deadline = clock() + CALL_SECONDS

    async def work() -> None:
        for number, call in left:
            if clock() >= deadline:
                return
            with suppress(LauncherUnavailable):
                found[number] = await limited(call())

    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(min(MAX_AT_ONCE, len(calls))):
                group.create_task(work())
    except ExceptionGroup as errors:
        raise errors.exceptions[0] from errors
    return found
