"""The watchdog: when a consumer counts as stuck."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, cast

import pytest

from services.runtime.bus import Partition
from services.runtime.consumer import Consumer
from services.runtime.errors import TemporaryError
from services.runtime.watchdog import (
    CHECK_SECONDS,
    STUCK_SECONDS,
    TURN_FACTOR,
    Standstill,
    Stuck,
    lag,
    watch,
)
from tests.fakes import ManualClock

A, B = Partition("t", 0), Partition("t", 1)
BOTH = frozenset({A, B})


@pytest.mark.parametrize(
    ("positions", "ends", "backing_off", "want_stuck"),
    [
        pytest.param({A: 5}, {A: 5}, set(), False, id="nothing to do"),
        pytest.param({A: 5}, {A: 9}, set(), True, id="lag, and the position stands"),
        pytest.param({A: 5, B: 7}, {A: 5, B: 9}, set(), True, id="one of two has lag"),
        pytest.param({}, {A: 9}, set(), True, id="the group owns nothing"),
        pytest.param({A: None}, {A: 9}, set(), True, id="the committed offset cannot be read"),
        pytest.param({A: 5}, {A: 9}, {A}, False, id="the partition backs off on purpose"),
        pytest.param({A: 5, B: 7}, {A: 9, B: 9}, {A}, True, id="another one backs off"),
    ],
)
def test_what_counts_as_no_progress(
    positions: Mapping[Partition, int | None],
    ends: Mapping[Partition, int],
    backing_off: set[Partition],
    want_stuck: bool,
) -> None:
    standstill = Standstill(0.0)
    standstill.observe(positions, ends, 0.0, backing_off)
    still = standstill.observe(positions, ends, 100.0, backing_off)
    assert (still.everywhere == 100.0) is want_stuck


def test_a_stuck_partition_is_detected_whatever_the_others_do() -> None:
    standstill = Standstill(0.0)
    ends = {A: 9, B: 9}
    seen = iter(range(0, 1000, 10))

    def observe(positions: Mapping[Partition, int | None], now: float) -> tuple[float, float]:
        return standstill.observe(positions, ends, now, num_polls=next(seen))

    observe({A: 5, B: 1}, 0.0)
    assert observe({A: 5, B: 2}, 50.0) == (0.0, 50.0)
    assert observe({A: 5, B: 2}, 60.0) == (10.0, 60.0)
    assert observe({A: 5, B: 9}, 70.0) == (0.0, 70.0)
    assert observe({A: 6, B: 9}, 80.0) == (0.0, 0.0)
    assert observe({A: 9, B: 9}, 90.0) == (0.0, 0.0)
    assert observe({A: 9, B: 9}, 900.0) == (0.0, 0.0)
    # Idleness before does not count against what comes after it.
    ends = {A: 10, B: 9}
    assert observe({A: 9, B: 9}, 910.0) == (0.0, 0.0)
    assert observe({A: 9, B: 9}, 920.0) == (10.0, 10.0)


def test_a_partition_that_was_not_polled_yet_is_not_stuck() -> None:
    """A poll whose records are handled for an hour keeps all other partitions waiting."""
    standstill = Standstill(0.0)
    ends = {A: 900, B: 9}
    standstill.observe({A: 1, B: 1}, ends, 0.0, num_polls=1)
    assert standstill.observe({A: 2, B: 1}, ends, 3600.0, num_polls=1) == (0.0, 0.0)
    assert standstill.observe({A: 3, B: 1}, ends, 7200.0, num_polls=9) == (0.0, 7200.0)


def test_lag_counts_the_records_after_the_positions() -> None:
    assert lag({A: 5, B: None}, {A: 9, B: 2}) == 6
    assert lag({A: 9}, {A: 5}) == 0


class StandingSource:
    """A member whose position never moves."""

    def __init__(self) -> None:
        self.is_unavailable = False
        self.moving: set[Partition] = set()
        self.num_asked = 0

    def assignment(self) -> frozenset[Partition]:
        return BOTH

    async def position(self, partition: Partition) -> int | None:
        self.num_asked += 1
        return self.num_asked if partition in self.moving else 5

    async def end_offsets(self) -> Mapping[Partition, int]:
        if self.is_unavailable:
            raise TemporaryError("Kafka does not answer")
        return {A: 10_000, B: 10_000}


class WatchedConsumer:
    """A consumer under the watchdog, on a clock that the test moves."""

    def __init__(self, clock: ManualClock) -> None:
        self.source = StandingSource()
        self.clock = clock
        self.consumer: Any = cast(Any, Consumer("group", cast(Any, self.source), None, None, clock))  # type: ignore[arg-type]

    async def let_pass(
        self, seconds: float, *, loop_turns: bool = True, polls: bool = True
    ) -> None:
        for _ in range(int(seconds / CHECK_SECONDS)):
            await self.clock.advance(CHECK_SECONDS)
            if loop_turns:
                self.consumer.num_polls += polls
                self.consumer.last_moved = self.clock.monotonic()
            for _ in range(20):
                await asyncio.sleep(0)


@asynccontextmanager
async def watched() -> AsyncIterator[tuple[WatchedConsumer, asyncio.Task[None]]]:
    clock = ManualClock()
    watched_consumer = WatchedConsumer(clock)
    task = asyncio.create_task(watch(watched_consumer.consumer, clock))
    await asyncio.sleep(0)
    try:
        yield watched_consumer, task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def test_a_consumer_without_progress_is_stuck() -> None:
    async with watched() as (watched_consumer, task):
        await watched_consumer.let_pass(STUCK_SECONDS)
        assert not task.done()
        await watched_consumer.let_pass(2 * CHECK_SECONDS)
        with pytest.raises(Stuck):
            task.result()


async def test_a_partition_that_never_has_its_turn_is_stuck() -> None:
    async with watched() as (watched_consumer, task):
        watched_consumer.source.moving = {A}
        await watched_consumer.let_pass(TURN_FACTOR * STUCK_SECONDS)
        assert not task.done()
        await watched_consumer.let_pass(2 * CHECK_SECONDS)
        with pytest.raises(Stuck, match="one partition"):
            task.result()


async def test_a_broker_that_does_not_answer_is_no_standstill_of_ours() -> None:
    async with watched() as (watched_consumer, task):
        watched_consumer.source.is_unavailable = True
        await watched_consumer.let_pass(10 * STUCK_SECONDS)
        assert not task.done()
        watched_consumer.source.is_unavailable = False
        await watched_consumer.let_pass(STUCK_SECONDS + 2 * CHECK_SECONDS)
        assert task.done()


async def test_a_process_that_was_suspended_is_not_stuck() -> None:
    async with watched() as (watched_consumer, task):
        watched_consumer.clock._elapsed += 10 * STUCK_SECONDS  # no task ran meanwhile
        await watched_consumer.clock.advance(0.0)
        watched_consumer.consumer.last_moved = watched_consumer.clock.monotonic()
        await watched_consumer.let_pass(STUCK_SECONDS)
        assert not task.done()
        await watched_consumer.let_pass(2 * CHECK_SECONDS)
        assert task.done()


async def test_a_loop_that_does_not_iterate_is_stuck_even_without_an_answer() -> None:
    async with watched() as (watched_consumer, task):
        watched_consumer.source.is_unavailable = True
        await watched_consumer.let_pass(STUCK_SECONDS + 2 * CHECK_SECONDS, loop_turns=False)
        with pytest.raises(Stuck, match="has not iterated"):
            task.result()


async def test_what_is_in_hand_moves_by_what_is_handled_of_it() -> None:
    """The fetch position is past a batch long before the batch is handled."""
    async with watched() as (watched_consumer, task):
        for offset in range(200):
            watched_consumer.consumer._in_hand[A] = offset
            await watched_consumer.let_pass(STUCK_SECONDS / 2, polls=False)
        assert not task.done()
        await watched_consumer.let_pass(STUCK_SECONDS + 2 * CHECK_SECONDS)
        with pytest.raises(Stuck):
            task.result()
