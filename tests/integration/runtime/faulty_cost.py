"""`python -m tests.integration.runtime.faulty_cost FAULT`: the cost service with one fault planted.

`killed-after-commit`: kill -9 at the first offset commit, so after the handler's transaction.
`deaf`: the consumer never gets a record again and says nothing, as aiokafka was seen to do.
`none`: no fault.
"""

import asyncio
import os
import signal
import sys
from functools import partial
from typing import Any

from services.cost.settings import CostSettings
from services.cost.wiring import build
from services.runtime import service, watchdog
from services.runtime.kafka import KafkaSource


async def killed(source: KafkaSource, offsets: Any) -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return False


async def deaf(
    source: KafkaSource, timeout_seconds: float, partitions: Any = None
) -> dict[Any, Any]:
    await asyncio.sleep(timeout_seconds)
    return {}


def plant(fault: str) -> None:
    if fault == "killed-after-commit":
        KafkaSource.commit = killed  # type: ignore[method-assign]
    elif fault == "deaf":
        KafkaSource.poll = deaf  # type: ignore[assignment, method-assign]
        watchdog.CHECK_SECONDS = 0.1
        service.watch = partial(watchdog.watch, stuck_seconds=1.0)  # type: ignore[attr-defined]


if __name__ == "__main__":
    plant(sys.argv.pop(1))
    service.main(CostSettings, build)
