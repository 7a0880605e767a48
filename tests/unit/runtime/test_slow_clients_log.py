"""Thousands of slow connections are few lines of the log, and each is counted in one of them."""

from collections.abc import Callable
from typing import Any, cast

from structlog.testing import capture_logs

from services.runtime.http_limits import LOG_SECONDS, Closed


class Loop:
    """Calls what waits when told to."""

    def __init__(self) -> None:
        self.waiting: list[tuple[float, Callable[..., None], tuple[Any, ...]]] = []

    def call_later(self, seconds: float, call: Callable[..., None], *given: Any) -> None:
        self.waiting.append((seconds, call, given))

    def pass_time(self) -> None:
        due, self.waiting = self.waiting, []
        for _, call, given in due:
            call(*given)


def test_a_flood_of_slow_connections_is_one_line_per_period() -> None:
    loop, closed = Loop(), Closed()

    def told(num: int, awaited: str = "headers") -> list[int]:
        """How many connections the lines tell of, after so many more were closed."""
        with capture_logs() as lines:
            for _ in range(num):
                closed.add(cast(Any, loop), awaited)
        return [line["num_connections"] for line in lines]

    def told_later() -> list[int]:
        with capture_logs() as lines:
            loop.pass_time()
        return [line["num_connections"] for line in lines]

    assert told(3000) == [1]
    assert [seconds for seconds, _, _ in loop.waiting] == [LOG_SECONDS]
    assert told_later() == [2999]
    assert told(5) == []
    assert told(2, "answer") == [1]
    assert told_later() == [5, 1]
    assert told_later() == []
    assert loop.waiting == []
    assert told(1) == [1], "a quiet minute has passed"
