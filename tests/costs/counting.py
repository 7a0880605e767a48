"""How the cost of one path grows from a size to four times that size, by counting.

A scenario is an async generator. It arranges a size once, then yields the work of one run after
another: a callable without arguments, whose result is awaited where it can be. What it does between
two yields is not counted, so there it makes each run's input: a value that caches what it derives,
rows that the run deletes. The first run is not counted; module-level caches are full after it.

    async def scenario(size: int) -> Runs:
        world = await filled(size)
        while True:
            yield partial(decide, snapshot(size), NOW)

    (await measure(scenario, 250)).assert_linear()

Counted are lines of product frames, statements, and rows that they read (`statements`). Lines do
not show a loop inside C (`sum`, `sorted`, `x in tuple`), so the thread's CPU time is measured as
well: the least of five runs, in turn at both sizes so that other load meets both alike.
"""

import gc
import inspect
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from tests.costs.statements import recorded

Work = Callable[[], Any]
Runs = AsyncIterator[Work]

FACTOR = 4
TIMED_RUNS = 5
NUM_SHOWN = 5
# Growth of four times the input, with room for a sort or a deeper tree; CPU time varies more.
LINEAR = {"lines": 4.6, "statements": 4.6, "rows": 4.6, "cpu": 6.0}
FLAT = {"lines": 1.3, "statements": 1.3, "rows": 1.3, "cpu": 2.0}
# With less, the part that does not grow would hide what grows too fast.
LEAST_LINEAR = 2.0

# Also in the tasks that the work starts, and not in others that share its loop.
_is_counted: ContextVar[bool] = ContextVar("is_counted", default=False)

ROOT = Path(__file__).resolve().parents[2]
PRODUCT = tuple(
    f"{ROOT / folder}/"
    for folder in ("services", "trainer/drivetrain", "schemas/drivetrain_schemas")
)


@dataclass(frozen=True, repr=False)
class Cost:
    """Of one run: by source line how often it was executed, by statement how often it was sent and
    how many rows it read, and seconds of CPU time."""

    lines: Counter[str]
    statements: Counter[str]
    rows: Counter[str]
    cpu: float

    def totals(self) -> dict[str, float]:
        return {
            "lines": self.lines.total(),
            "statements": self.statements.total(),
            "rows": self.rows.total(),
            "cpu": self.cpu,
        }


@dataclass(frozen=True, repr=False)
class Growth:
    """The cost at a size and at `FACTOR` times that size."""

    small: Cost
    large: Cost

    def assert_linear(self) -> None:
        """Nothing grows faster than the inputs, which all grow together."""
        __tracebackhide__ = True
        self._assert_within(LINEAR)
        large = self.large.totals()
        most = max(large[name] / total for name, total in self.small.totals().items() if total)
        assert most >= LEAST_LINEAR, f"hardly anything grows: take a larger size\n{self}"

    def assert_flat(self, *names: str) -> None:
        """What the work does not depend on costs nothing. `names`: only these measures."""
        __tracebackhide__ = True
        self._assert_within({name: FLAT[name] for name in names or FLAT})

    def __str__(self) -> str:
        small, large = self.small.totals(), self.large.totals()
        table = [f"{name}: {small[name]:g} -> {large[name]:g}" for name in small if large[name] > 0]
        return "\n".join(
            [
                *table,
                *_most("lines", self.small.lines, self.large.lines),
                *_most("rows read by", self.small.rows, self.large.rows),
            ]
        )

    def _assert_within(self, limits: dict[str, float]) -> None:
        __tracebackhide__ = True
        small, large = self.small.totals(), self.large.totals()
        assert small["lines"] > 0, "the scenario executes no line of the product"
        broken = [
            f"{name} grow from {small[name]:g} to {large[name]:g}, more than {limit} x"
            for name, limit in limits.items()
            if large[name] > limit * small[name]
        ]
        assert not broken, "\n".join([*broken, str(self)])


async def measure(scenario: Callable[[int], Runs], small: int) -> Growth:
    """The costs of a run at this size and at `FACTOR` times it."""
    async with (
        aclosing(scenario(small)) as at_small,
        aclosing(scenario(FACTOR * small)) as at_large,
    ):
        sides = (at_small, at_large)
        for runs in sides:
            await _run(await anext(runs))
        counted = [await _counted(await anext(runs)) for runs in sides]
        with _no_collection():
            seconds = [
                [await _timed(await anext(runs)) for runs in sides] for _ in range(TIMED_RUNS)
            ]
    cpus = [min(each) for each in zip(*seconds, strict=True)]
    small_cost, large_cost = (Cost(*each, cpu) for each, cpu in zip(counted, cpus, strict=True))
    return Growth(small_cost, large_cost)


async def _run(work: Work) -> None:
    result = work()
    if inspect.isawaitable(result):
        await result


async def _counted(work: Work) -> tuple[Counter[str], Counter[str], Counter[str]]:
    with recorded() as statements, _executed_lines() as lines:
        await _run(work)
    return lines, statements.sent, statements.rows


async def _timed(work: Work) -> float:
    began = time.thread_time()
    await _run(work)
    return time.thread_time() - began


@contextmanager
def _no_collection() -> Iterator[None]:
    """What the collector costs depends on what the process has done before."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def _executed_lines() -> Iterator[Counter[str]]:
    """How often the work executes each line of the product in this thread, in its tasks too."""
    executed: Counter[tuple[str, int]] = Counter()
    named: Counter[str] = Counter()

    def on_line(frame: FrameType, event: str, _argument: object) -> Any:
        if event == "line":
            executed[frame.f_code.co_filename, frame.f_lineno] += 1
        return on_line

    def on_call(frame: FrameType, _event: str, _argument: object) -> Any:
        is_meant = frame.f_code.co_filename.startswith(PRODUCT) and _is_counted.get()
        return on_line if is_meant else None

    before = sys.gettrace()
    counted = _is_counted.set(True)
    sys.settrace(on_call)
    try:
        yield named
    finally:
        sys.settrace(before)
        _is_counted.reset(counted)
        for (path, number), count in executed.items():
            named[f"{Path(path).relative_to(ROOT)}:{number}"] = count


def _most(what: str, small: Counter[str], large: Counter[str]) -> Iterator[str]:
    """Where most of it is at the large size, and how much that was at the small one."""
    for name, count in large.most_common(NUM_SHOWN):
        yield f"  {what} {' '.join(name.split())[:200]}: {small[name]} -> {count}"
