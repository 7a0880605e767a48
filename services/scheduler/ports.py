"""The rendezvous ports of the next runs, looked at before the transaction that grants them.

A transaction that holds the writer lock waits for nothing else, so it takes what was seen a moment
ago. That is a hint; the unique index on the ports of live runs decides.
"""

from collections.abc import Collection

from services.runtime import logs
from services.runtime.service import Platform
from services.scheduler import store_runs
from services.scheduler.core.cycle import MAX_GRANTS
from services.scheduler.core.ports import candidates, choose, first_port, next_port
from services.scheduler.launchers.base import Launcher, LauncherUnavailable
from services.scheduler.launchers.calls import limited

log = logs.get()

FRESH_SECONDS = 10.0


class Ports:
    """`held` are always the ports of live runs."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._next: int | None = None
        self._silent: Collection[int] = ()
        self._is_used = True
        self._looked_at = 0.0

    async def look(self, platform: Platform, held: Collection[int]) -> None:
        """Prepare the next grants, unless what was seen is new and unused."""
        now = platform.clock.monotonic()
        if not self._is_used and now - self._looked_at < FRESH_SECONDS:
            return
        if self._next is None:
            async with platform.database.connection() as connection:
                self._next = first_port(await store_runs.next_fence(connection))
        ports = candidates(self._next, held, MAX_GRANTS)
        try:
            self._silent = await limited(self._launcher.free_ports(ports))
        except (LauncherUnavailable, OSError) as error:
            log.warning("ports not looked at", error=repr(error))
            return
        self._is_used = False
        self._looked_at = now

    def choose(self, held: Collection[int], number: int) -> list[int]:
        """As many as there are, up to `number`."""
        assert self._next is not None, "look comes first"
        chosen = choose(self._next, held, self._silent, number)
        if chosen:
            self._next = next_port(chosen[-1])
            self._is_used = True
        return chosen
