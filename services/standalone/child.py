"""One supervised process: started, probed, restarted when it ends, stopped on request.

In: how to launch it, its readiness probe, and the restart policy. Out: its state (reported to a
listener on every change), its log file, and its warnings. `supervise` runs until `stop`, or raises
`ChildGaveUp` when the policy says so, and `PortTaken`. The process gets a session of its own (a
Ctrl-C in the terminal reaches only the supervisor) and, where asked, a leash that ends it with the
supervisor. Its output goes directly into a file, so the supervisor can never block it.
"""

import asyncio
import errno
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

from services.runtime.disk import Space, read_disk
from services.standalone.core.restarts import (
    ChildExit,
    ExitHistory,
    GiveUp,
    RestartPolicy,
    after_exit,
)
from services.standalone.identity import ProcessIdentity, identify
from services.standalone.introductions import Introductions
from services.standalone.listeners import listener_on
from services.standalone.logs import last_lines, rotate_log
from services.standalone.ports import PortTaken, is_free

LEASH = Path(__file__).with_name("leash.py")
FIRST_PROBE_S = 0.05
LONGEST_PROBE_S = 0.4
WATCH_S = 10.0
LOG_LINES = 25
NO_SPACE = os.strerror(errno.ENOSPC)
# A shell's exit code for a program that it could not run.
EXIT_NOT_STARTED = 126

Probe = Callable[[], Awaitable[bool]]


class ChildState(StrEnum):
    WAITING = "waiting"
    PREPARING = "preparing"
    STARTING = "starting"
    READY = "ready"
    NOT_READY = "not ready"
    """It was ready, and does not answer its probe any more."""
    RESTARTING = "restarting"
    STOPPED = "stopped"
    DONE = "done"
    FAILED = "failed"


class ChildGaveUp(RuntimeError):
    """A child did not become ready; contains the end of its log."""

    def __init__(self, name: str, num_exits: int, status: str, log_path: Path) -> None:
        self.name = name
        self.log_path = log_path
        self.log_end = last_lines(log_path, LOG_LINES)
        times = "once" if num_exits == 1 else f"{num_exits} times in a row"
        super().__init__(f"{name} ended {times} before it was ready (last: {status})")


@dataclass(frozen=True, slots=True)
class SystemUser:
    uid: int
    gid: int


@dataclass(frozen=True, slots=True)
class Launch:
    argv: tuple[str, ...]
    environment: Mapping[str, str]
    directory: Path
    user: SystemUser | None = None
    stop_signal: int = signal.SIGTERM
    stop_timeout_s: float = 15.0
    is_leashed: bool = True
    """Ended with the supervisor, even if that is killed."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """What does not change about a child while it runs."""

    name: str
    launch: Launch
    log_path: Path
    probe: Probe | None
    """None: a one-shot, ready when it has ended with code 0."""
    ports: Mapping[str, int] = field(default_factory=dict)
    """By name; the first one is shown."""
    prepare: Callable[[], None] | None = None
    """Blocking work before the first start, done in a thread."""
    policy: RestartPolicy = field(default_factory=RestartPolicy)
    caller: str = ""
    """The only child that may call it; `introduce` says which process that is."""

    @property
    def port(self) -> int | None:
        return next(iter(self.ports.values()), None)


class Child:
    def __init__(
        self,
        spec: ChildSpec,
        needs: tuple["Child", ...] = (),
        on_change: Callable[["Child"], None] = lambda child: None,
        warn: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.spec = spec
        self.state = ChildState.WAITING
        self.identity: ProcessIdentity | None = None
        self.num_restarts = 0
        self.started_at: datetime | None = None
        self.last_exit = ""
        self.changed_at = datetime.now(UTC)
        self._needs = needs
        self._on_change = on_change
        self._warn = warn
        self._caller: ProcessIdentity | None = None
        self._introductions: Introductions | None = None
        self._ready = asyncio.Event()
        self._stopping = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None

    @property
    def name(self) -> str:
        return self.spec.name

    @property
    def is_ready(self) -> bool:
        return self._ready.is_set()

    @property
    def pid(self) -> int | None:
        return self.identity.pid if self.identity else None

    async def wait_ready(self) -> None:
        await self._ready.wait()

    async def supervise(self) -> None:
        """Keep the process running until `stop`; raise `ChildGaveUp` or `PortTaken`."""
        history = ExitHistory()
        if self.spec.prepare is not None:
            self._change(ChildState.PREPARING)
            await asyncio.to_thread(self.spec.prepare)
        while not self._stopping.is_set():
            for needed in self._needs:
                await self._unless_stopping(needed.wait_ready())
            if self._stopping.is_set():
                break
            ended = await self._run_once()
            if self._stopping.is_set():
                break
            if self.spec.probe is None and ended.code == 0:
                self._change(ChildState.DONE)
                self._ready.set()
                return
            history, verdict = after_exit(self.spec.policy, history, ended)
            if not history.was_ever_ready:
                self._refuse_taken_ports()
            if isinstance(verdict, GiveUp):
                self._change(ChildState.FAILED)
                raise ChildGaveUp(self.name, verdict.num_exits, self.last_exit, self.spec.log_path)
            self.num_restarts += 1
            self._change(ChildState.RESTARTING)
            await self._unless_stopping(asyncio.sleep(verdict.delay_s))
        self._change(ChildState.STOPPED)

    async def stop(self) -> None:
        """Signal the process to end; kill it after its timeout."""
        self._stopping.set()
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process, self.spec.launch.stop_signal)
        try:
            async with asyncio.timeout(self.spec.launch.stop_timeout_s):
                await process.wait()
        except TimeoutError:
            _signal(process, signal.SIGKILL)
            await process.wait()

    def kill(self) -> None:
        """`kill -9`, as a fault would; the supervisor starts it again."""
        if self._process is not None:
            _signal(self._process, signal.SIGKILL)

    def abandon(self) -> None:
        """`kill -9` without a restart: for a person who does not want to wait for the stop."""
        self._stopping.set()
        self.kill()

    def introduce(self, caller: ProcessIdentity) -> None:
        """Tell the child, and those that are started in its place, which process may call it."""
        if caller == self._caller:
            return
        self._caller = caller
        if self._introductions is not None:
            self._introductions.introduce(caller)

    async def kill_and_wait_ready(self) -> None:
        """`kill -9`, then wait until the next process is ready."""
        old = self._process
        self.kill()
        while self._process is old or not self.is_ready:
            await asyncio.sleep(FIRST_PROBE_S)

    async def _run_once(self) -> ChildExit:
        """Start the process, report its readiness, and return when it has ended."""
        began = time.monotonic()
        was_ready = False
        try:
            await self._spawn()
            was_ready, code = await self._until_ended()
            self.last_exit = _describe_exit(code)
        except OSError as error:
            # Its log cannot be opened, or the system cannot start a process.
            code = EXIT_NOT_STARTED
            self.last_exit = f"not started: {error}"
        finally:
            if self._introductions is not None:
                self._introductions.close()
                self._introductions = None
        return ChildExit(
            was_ready,
            time.monotonic() - began,
            code,
            was_supported=all(needed.is_ready for needed in self._needs),
            had_space=self._has_space(),
        )

    def _has_space(self) -> bool:
        log = self.spec.log_path
        if NO_SPACE in last_lines(log, LOG_LINES):
            return False
        try:
            return read_disk(log.parent).space is not Space.FULL
        except OSError:
            return True

    def _refuse_taken_ports(self) -> None:
        """A restart does not help while another program uses a port of this child."""
        for name, port in self.spec.ports.items():
            if not is_free(port):
                self._change(ChildState.FAILED)
                raise PortTaken(name, port)

    async def _until_ended(self) -> tuple[bool, int]:
        """Whether the process became ready, and its exit code."""
        assert self._process is not None
        if self._stopping.is_set():
            # `stop` was called while the process was being created.
            await self.stop()
        ending = asyncio.ensure_future(self._process.wait())
        probing = asyncio.ensure_future(self._probe_until_ready())
        try:
            await asyncio.wait({ending, probing}, return_when=asyncio.FIRST_COMPLETED)
            was_ready = probing.done() and not ending.done()
            if was_ready:
                probing.result()
                self._change(ChildState.READY)
                self._ready.set()
                probing = asyncio.ensure_future(self._watch())
                await asyncio.wait({ending, probing}, return_when=asyncio.FIRST_COMPLETED)
                if probing.done():
                    probing.result()
            code = await ending
            return was_ready, code
        finally:
            self._ready.clear()
            probing.cancel()
            await asyncio.gather(probing, return_exceptions=True)
            if not ending.done():
                # Cancelled from outside: the process must not be left running.
                _signal(self._process, signal.SIGKILL)
                await ending
            self.identity = None

    async def _spawn(self) -> None:
        launch = self.spec.launch
        self.spec.log_path.parent.mkdir(parents=True, exist_ok=True)
        rotate_log(self.spec.log_path)
        user = f"{launch.user.uid}:{launch.user.gid}" if launch.user else "-"
        death_signal = int(launch.stop_signal) if launch.is_leashed else 0
        leash = (sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), str(death_signal), user)
        given = self._open_input()
        descriptor = os.open(self.spec.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            self._process = await asyncio.create_subprocess_exec(
                *leash,
                *launch.argv,
                stdin=asyncio.subprocess.DEVNULL if given is None else given.of_child.fileno(),
                stdout=descriptor,
                stderr=descriptor,
                cwd=launch.directory,
                env=dict(launch.environment),
                start_new_session=True,
            )
        finally:
            os.close(descriptor)
            if given is not None:
                given.of_child.close()
        self.identity = identify(self._process.pid)
        self.started_at = datetime.now(UTC)
        self._change(ChildState.STARTING)

    def _open_input(self) -> Introductions | None:
        """What the process reads from its standard input."""
        if self.spec.caller:
            self._introductions = Introductions(lambda text: self._warn(f"{self.name}: {text}"))
            if self._caller is not None:
                self._introductions.introduce(self._caller)
        return self._introductions

    async def _probe_until_ready(self) -> None:
        if self.spec.probe is None:
            await asyncio.Event().wait()
            return
        pause_s = FIRST_PROBE_S
        while not (await self.spec.probe() and await asyncio.to_thread(self._has_its_ports)):
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 1.5, LONGEST_PROBE_S)

    def _has_its_ports(self) -> bool:
        """No other program has answered the probe. One that may not be seen is not suspected."""
        holders = [listener_on(port) for port in self.spec.ports.values()]
        return all(it is None or _session_of(it.pid) in (None, self.pid) for it in holders)

    async def _watch(self) -> None:
        """Report when it does not answer two probes in a row, and when it answers again."""
        assert self.spec.probe is not None
        num_missed = 0
        while True:
            await asyncio.sleep(WATCH_S)
            num_missed = 0 if await self.spec.probe() else num_missed + 1
            state = ChildState.READY if num_missed < 2 else ChildState.NOT_READY
            if state is not self.state:
                self._change(state)

    async def _unless_stopping(self, wait: Awaitable[object]) -> None:
        waiting = asyncio.ensure_future(wait)
        stopping = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            stopping.cancel()
            await asyncio.gather(waiting, stopping, return_exceptions=True)

    def _change(self, state: ChildState) -> None:
        self.state = state
        self.changed_at = datetime.now(UTC)
        self._on_change(self)


def _session_of(pid: int) -> int | None:
    """Each child begins a session, whose number is its pid. None where it has ended."""
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    try:
        process.send_signal(number)
    except ProcessLookupError:
        return


def _describe_exit(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"killed by signal {-code}"
