"""Run the parts: start each after its dependencies, restart it when it ends, stop in order.

In: the parts' child specs, the state file, listeners. Out: `state.json` (what runs, as which
process, since when; read by `status` and by the next start) and, when a part does not become ready,
`ChildGaveUp`. An orderly stop goes layer by layer, each bounded in time. A full disk stops nothing
here: a file that cannot be written is written again later.
"""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from services.runtime.disk import Space, fullest, warning
from services.standalone.child import Child, ChildSpec, ChildState
from services.standalone.files import write_private
from services.standalone.identity import ProcessIdentity, end_process, identify
from services.standalone.logs import rotate_log
from services.standalone.parts import Layer
from services.standalone.record import read_record

CARE_S = 5.0
LEFTOVER_STOP_S = 10.0
STATE = "state.json"

Listener = Callable[[Child], None]
Warn = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Member:
    """The supervisor's record of a part."""

    spec: ChildSpec
    layer: Layer
    needs: tuple[str, ...] = ()


class Supervisor:
    def __init__(
        self,
        members: Sequence[Member],
        state_file: Path,
        listener: Listener = lambda child: None,
        stop_pods: Callable[[], Awaitable[object]] | None = None,
        outside: Mapping[str, str] | None = None,
        warn: Warn = lambda text: None,
        keep_connection: Callable[[], None] = lambda: None,
    ) -> None:
        self._keep_connection = keep_connection
        self._state_file = state_file
        self._listener = listener
        self._stop_pods = stop_pods
        self._outside = dict(outside or {})
        self._warn = warn
        self._warnings: dict[str, str] = {}
        self._space = Space.ENOUGH
        self._since = datetime.now(UTC)
        self._layers: dict[Layer, list[Child]] = {layer: [] for layer in Layer}
        self.children: dict[str, Child] = {}
        for member in members:
            needs = tuple(self.children[name] for name in member.needs if name in self.children)
            child = Child(member.spec, needs, self._on_change, warn)
            self.children[child.name] = child
            self._layers[member.layer].append(child)
        self._tasks: list[asyncio.Task[None]] = []
        self._care_task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Return when every part is ready; raise when one does not become ready."""
        self._tasks = [
            asyncio.create_task(child.supervise(), name=child.name)
            for child in self.children.values()
        ]
        self._care_task = asyncio.create_task(self._take_care())
        ready = asyncio.gather(*(child.wait_ready() for child in self.children.values()))
        try:
            await self._until(ready)
        finally:
            ready.cancel()
            await asyncio.gather(ready, return_exceptions=True)

    async def run_until(self, asked_to_stop: asyncio.Event) -> None:
        """Return when a stop is requested; raise when a supervision failed."""
        asked = asyncio.ensure_future(asked_to_stop.wait())
        try:
            await self._until(asked)
        finally:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)

    async def stop(self) -> None:
        """Services, then pods, then the template, then Kafka and Postgres."""
        for layer in sorted(self._layers, reverse=True):
            await asyncio.gather(*(child.stop() for child in self._layers[layer]))
            if layer is Layer.SERVICE and self._stop_pods is not None:
                await self._stop_pods()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._care_task is not None:
            self._care_task.cancel()
            await asyncio.gather(self._care_task, return_exceptions=True)
        self._record()

    def kill(self) -> None:
        """Kill every child at once, for a person who does not want to wait."""
        for child in self.children.values():
            child.abandon()

    async def _until(self, goal: "asyncio.Future[Any]") -> None:
        """Wait for the goal, or raise the error that ended a child's supervision before it."""
        while not goal.done():
            running = [task for task in self._tasks if not task.done()]
            await asyncio.wait({goal, *running}, return_when=asyncio.FIRST_COMPLETED)
            for task in self._tasks:
                if task.done():
                    task.result()
        goal.result()

    async def _take_care(self) -> None:
        """Rotate the logs, watch the disk, and write again what could not be written."""
        while True:
            for child in self.children.values():
                await asyncio.to_thread(self._attempt, child.name, rotate_log, child.spec.log_path)
            self._attempt("disk", self._watch_disk)
            self._attempt("connection.json", self._keep_connection)
            if STATE in self._warnings:
                self._record()
            await asyncio.sleep(CARE_S)

    def _watch_disk(self) -> None:
        path, disk = fullest(self._state_file.parent)
        if disk.space is not self._space:
            self._warn(warning(disk, path) or f"The disk of {path} has enough free space again.")
        self._space = disk.space

    def _attempt(self, what: str, work: Callable[..., object], *arguments: object) -> None:
        """Do it; on a system error, warn once and continue: the next attempt may succeed."""
        try:
            work(*arguments)
            self._warnings.pop(what, None)
        except OSError as error:
            if self._warnings.get(what) != str(error):
                self._warn(f"{what}: {error}; trying again")
            self._warnings[what] = str(error)

    def _on_change(self, child: Child) -> None:
        self._introduce(child)
        self._record()
        self._listener(child)

    def _introduce(self, caller: Child) -> None:
        """To the children that only this one may call."""
        for child in self.children.values():
            if child.spec.caller == caller.name and caller.identity is not None:
                child.introduce(caller.identity)

    def _record(self) -> None:
        self._attempt(STATE, self._write_state)

    def _write_state(self) -> None:
        me = identify(os.getpid())
        parts = [_row(child) for child in self.children.values()]
        parts += [{"name": name, "state": "outside"} for name in self._outside]
        content = {
            "home": _place(self._state_file.parent),
            "supervisor": asdict(me) if me else None,
            "since": self._since.isoformat(timespec="seconds"),
            "parts": parts,
        }
        write_private(self._state_file, json.dumps(content, indent=2) + "\n")


async def end_leftovers(state_file: Path) -> tuple[str, ...]:
    """End the children of a platform that was killed; returns their names.

    Only processes of the recorded identity are touched, never pods: those are adopted. In a copy
    of a data directory the record names the processes of the original: none of them is touched.
    """
    leftovers = _recorded_children(state_file)
    alive = {name: who for name, who in leftovers.items() if identify(who.pid) == who}
    for who in alive.values():
        # A process stopped by SIGSTOP does not handle the signal to end.
        os.kill(who.pid, signal.SIGCONT)
    await asyncio.gather(
        *(end_process(who, _end_signal(name), LEFTOVER_STOP_S) for name, who in alive.items())
    )
    return tuple(alive)


def _recorded_children(state_file: Path) -> dict[str, ProcessIdentity]:
    record = read_record(state_file)
    if record.home != _place(state_file.parent):
        return {}
    return {row.name: row.identity for row in record.rows if row.identity}


def _place(directory: Path) -> dict[str, int]:
    """What tells a directory from a copy of it, and stays the same when it is moved."""
    status = directory.stat()
    return {"device": status.st_dev, "inode": status.st_ino}


def _end_signal(name: str) -> int:
    # Postgres waits for its clients on SIGTERM, and disconnects them on SIGINT.
    return signal.SIGINT if name == "postgres" else signal.SIGTERM


def _row(child: Child) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": child.name,
        "state": child.state,
        "restarts": child.num_restarts,
        "port": child.spec.port,
        "log": str(child.spec.log_path),
        "last_exit": child.last_exit or None,
        "since": child.changed_at.isoformat(timespec="seconds"),
        "started_at": None,
    }
    if child.identity is not None and child.state not in (ChildState.STOPPED, ChildState.DONE):
        row |= asdict(child.identity)
    if child.started_at is not None:
        row["started_at"] = child.started_at.isoformat(timespec="milliseconds")
    return row
