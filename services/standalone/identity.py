"""The identity of a process, so that a reused pid is never mistaken for it.

A process is named by boot id, pid and start time (clock ticks since boot); after a `kill -9` of
everything the next start reads recorded identities and ends only processes that still have them.
A zombie counts as gone: in a container without an init process none is reaped.
"""

import asyncio
import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from services.runtime import processes

POLL_S = 0.02

Pid = Annotated[int, Field(gt=0, lt=2**31)]
"""As it is read from a file."""


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    pid: int
    start_ticks: int
    boot_id: str


def identify(pid: int) -> ProcessIdentity | None:
    """The identity of a living process, or None."""
    ticks = processes.start_ticks(pid)
    return None if ticks is None else ProcessIdentity(pid, ticks, processes.boot_id())


def is_alive(identity: ProcessIdentity) -> bool:
    return identify(identity.pid) == identity


async def wait_gone(identity: ProcessIdentity, timeout_s: float) -> bool:
    """True once the process is gone, False if it still runs after the timeout."""
    try:
        async with asyncio.timeout(timeout_s):
            while is_alive(identity):
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        return False
    return True


def send_signal(identity: ProcessIdentity, number: int) -> None:
    """Signal the process if the pid is still its own."""
    if is_alive(identity):
        with suppress(ProcessLookupError):
            os.kill(identity.pid, number)


async def end_process(identity: ProcessIdentity, number: int, timeout_s: float) -> bool:
    """Signal the process to end, then kill it; False if it still runs after that."""
    send_signal(identity, number)
    if await wait_gone(identity, timeout_s):
        return True
    send_signal(identity, signal.SIGKILL)
    return await wait_gone(identity, 5.0)
