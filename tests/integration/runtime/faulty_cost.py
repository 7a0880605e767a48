"""`python -m tests.integration.runtime.faulty_cost FAULT`: the cost service with one fault planted.

`killed-after-inbox`, `killed-amid-effects`, `killed-before-commit`: kill -9 inside the transaction
of a batch: once its inbox rows are inserted, once its charges are, and once its outbox is written.
`killed-after-commit`: kill -9 at the first offset commit, so after the transaction of a batch.
`killed-decoding`: kill -9 while a batch that holds the word `deadly` is decoded.
`bug`: the handler raises whenever it inserts charges.
`deaf`: the consumer never gets a record again and says nothing, as aiokafka was seen to do.
`none`: no fault.
"""

import asyncio
import itertools
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

from services.cost import store
from services.cost.settings import CostSettings
from services.cost.wiring import build
from services.runtime import decoding, processing, service, watchdog
from services.runtime.kafka_source import KafkaSource
from services.runtime.transaction import Tx


async def killed(*_arguments: Any) -> bool:
    os.kill(os.getpid(), signal.SIGKILL)
    return False


def killed_after(
    function: Any, num_calls: int = 1, counts: Callable[[Any], bool] = lambda _: True
) -> Any:
    """The function, whose caller does not live to see its last call return."""
    calls = itertools.count(1)

    async def wrapped(*arguments: Any) -> Any:
        answer = await function(*arguments)
        if counts(arguments[0]) and next(calls) == num_calls:
            await killed()
        return answer

    return wrapped


def killed_decoding(unpack: Any) -> Any:
    def wrapped(batch: Any) -> Any:
        if b"deadly" in bytes(batch._raw) and batch._partition not in decoding._WITHHELD:
            os.kill(os.getpid(), signal.SIGKILL)
        return unpack(batch)

    return wrapped


async def raising(*_arguments: Any) -> Any:
    raise KeyError("a bug")


async def deaf(source: KafkaSource, timeout_seconds: float, *_limits: Any) -> dict[Any, Any]:
    await asyncio.sleep(timeout_seconds)
    return {}


def plant(fault: str) -> None:
    if fault == "killed-after-inbox":
        processing._new_items = killed_after(processing._new_items)
    elif fault == "killed-amid-effects":
        store.insert_charges = killed_after(store.insert_charges)
    elif fault == "killed-before-commit":
        has_emitted = Tx.has_emitted.fget
        Tx.write_outbox = killed_after(Tx.write_outbox, 1, has_emitted)  # type: ignore[method-assign]
    elif fault == "killed-after-commit":
        KafkaSource.commit = killed  # type: ignore[method-assign]
    elif fault == "killed-decoding":
        decoding._Batch._unpack = killed_decoding(decoding._Batch._unpack)  # type: ignore[method-assign]
    elif fault == "bug":
        store.insert_charges = raising
    elif fault == "deaf":
        KafkaSource.poll = deaf  # type: ignore[assignment, method-assign]
        watchdog.CHECK_SECONDS = 0.1
        service.watch = partial(watchdog.watch, stuck_seconds=1.0)  # type: ignore[attr-defined]


if __name__ == "__main__":
    plant(sys.argv.pop(1))
    service.main(CostSettings, build)
