"""A task that does the same again and again, until it is cancelled."""

from collections.abc import Awaitable, Callable
from typing import Any

from prometheus_client import Counter

from services.runtime import logs
from services.runtime.clock import Clock
from services.runtime.errors import is_temporary

log = logs.get()
Work = Callable[[], Awaitable[Any]]


async def repeat(
    work: Work, clock: Clock, seconds: float, waits: str, failures: Counter | None = None
) -> None:
    """Pause after each. A temporary failure is logged as `waits` and counted; others are raised."""
    while True:
        try:
            await work()
        except Exception as error:
            if not is_temporary(error):
                raise
            log.warning(waits, error=repr(error))
            if failures is not None:
                failures.inc()
        await clock.sleep(seconds)
