"""The supervision of a pod from its started ranks to its last process: one event loop.

Reaps, forwards output, serves the ranks' socket, sends heartbeats, and decides when to kill: at the
deadline of a stop notice, some seconds after a rank has failed, and when all ranks have ended but
something they started has not. The result is the ends of the ranks, in order.
"""

import asyncio
import json
import logging
import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from drivetrain import control
from drivetrain.messages import (
    MAX_ORDINAL,
    Ack,
    CheckpointSaved,
    Described,
    MediaSaved,
    Message,
    PhaseBegun,
    Samples,
    SaveFailed,
    StepProgress,
    Warned,
    decoder,
    encode_line,
)
from drivetrain.pod import failures, memory, outcome, processes
from drivetrain.pod.alone import Alone, listens
from drivetrain.pod.events import Events
from drivetrain.pod.kept_output import open_kept_output
from drivetrain.pod.logs import BURST_BYTES, RankLog, RateLimit
from drivetrain.pod.notices import TAKEN, Notices
from drivetrain.pod.ranks import Rank
from drivetrain.pod.stopping import StopSignal
from drivetrain.pod.telemetry import Telemetry
from drivetrain.pod.told import MAX_ALERTS, Told
from drivetrain.pod.tracing import PodSpans
from drivetrain.pod.unsent import Unsent
from drivetrain.pod.without_effect import without_effect
from drivetrain.pod.working_directory import PodFiles
from drivetrain.results import write_atomically
from drivetrain.samples import LastAndBest
from drivetrain_schemas.jobs import Goal
from drivetrain_schemas.pods import Failure, FailureKind, PodSpec, RankExit, StopNotice
from drivetrain_schemas.reports import ALERT, BEGINS_WITH

GRACE_AFTER_FAILURE_SECONDS = 5.0
GRACE_FOR_LEFTOVERS_SECONDS = 1.0
FLUSH_SECONDS = 3.0
# The launcher allows a shim more than this past the deadline of a notice.
SAVE_AFTER_DEADLINE_SECONDS = 3.0
_TICK_SECONDS = 0.25
_PHASES = ("training", "checkpointing", "stopping")
_logger = logging.getLogger("drivetrain.pod")


class Supervision:
    """Supervises the ranks of one pod."""

    def __init__(
        self, spec: PodSpec, notices: Notices, ranks: Sequence[Rank], listener: socket.socket
    ) -> None:
        directory = notices.directory
        self._notices = notices
        self._ranks = {rank.pid: rank for rank in ranks}
        self._listener = listener
        self._events = Events(spec)
        self._telemetry = Telemetry(spec.kafka)
        rate = 1024 * min(spec.job.logs.kib_per_second, spec.max_log_kib_per_second)
        limit = RateLimit(rate, max(rate, BURST_BYTES), time.monotonic())
        self._logs = {rank.rank: RankLog(rank.rank, limit) for rank in ranks}
        self._log_file = open_kept_output(directory / "log")
        self._connections: set[asyncio.Task[None]] = set()
        self._progress = StepProgress(state="starting")
        self._doing: str | None = None
        # When a phase began or ended, or one that is named had output.
        self._lively_at: float | None = None
        self._num_dropped: dict[object, int] = {}
        self._num_refused: dict[object, int] = {}
        self._kill_at: float | None = None
        self._is_gone = asyncio.Event()
        self._alone = Alone(spec, time.monotonic(), listens)
        self._num_heartbeats = 0
        # Processes that the kernel killed for lack of memory: some seconds ago, and a second ago.
        self._num_killed = (memory.num_killed(), memory.num_killed())
        self._is_out_of_memory = False
        self._peak_bytes: dict[int, int] = {}  # by rank
        self._has_saved = False
        self._spec = spec
        self._uses_package = False
        self._told = Told()
        self.ends: list[RankExit] = []
        self.notice: StopNotice | None = None
        self.spans = PodSpans(spec)
        self._stop_signal = StopSignal()
        self._is_notified = asyncio.Event()
        self._unsent = Unsent(directory, spec.kafka)
        self._loop = asyncio.get_running_loop()
        self.reported = _standing(spec)
        self.reported_step = 0
        # The internal error because of which the pod had to be ended.
        self.flaw = ""

    async def watch(self, has_notice: bool, files: PodFiles) -> None:
        """Return when no process of the pod is left; most of its telemetry has been sent then."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._reap)
        loop.add_signal_handler(signal.SIGTERM, self._on_notice)
        if has_notice:
            self._on_notice()
        for rank in self._ranks.values():
            loop.add_reader(rank.output, self._read, rank)
        self._telemetry.start()
        server = await asyncio.start_unix_server(
            self._serve, sock=self._listener, limit=control.MAX_LINE_BYTES
        )
        ticker = asyncio.create_task(self._tick())
        self._reap()
        await self._until_gone(ticker)
        server.close()
        await self._drain_connections()
        for rank in self._ranks.values():
            while self._read(rank):
                continue
            loop.remove_reader(rank.output)
        self._say_if_alone()
        self._say_what_was_left_out()
        self._say_what_had_no_effect()
        if self.notice is None or self.notice.checkpoint:
            await files.save_last(
                self._save_by, lambda: self._beat("ending"), has_failed=self._has_failed_by_itself
            )
            # A program that tells its step says by it whether it got further.
            self._has_saved |= files.have_changed and self._progress.step is None
        await asyncio.sleep(0)  # what it said last is added to the log
        try:
            self._forward_logs(is_last=True)
            self._beat("ending")
        except Exception:  # exit.json must be written, whatever fails before
            _logger.exception("the last output and heartbeat are lost")
        if self._log_file is not None:
            self._log_file.close()
        await self._telemetry.flush(FLUSH_SECONDS)

    async def _until_gone(self, ticker: asyncio.Task[None]) -> None:
        """No process is left. Without a ticker no deadline is enforced and no heartbeat sent."""
        gone = asyncio.create_task(self._is_gone.wait())
        await asyncio.wait({gone, ticker}, return_when=asyncio.FIRST_COMPLETED)
        if ticker.done() and not gone.done():
            self.flaw = f"the pod's shim failed: {ticker.exception()!r}"[:1000]
            _logger.error(self.flaw)
            while not gone.done():
                self._kill()
                await asyncio.wait({gone}, timeout=_TICK_SECONDS)
        ticker.cancel()
        await asyncio.gather(ticker, return_exceptions=True)

    async def send_the_rest(self) -> None:
        """After `exit.json`: see to what Kafka has not acknowledged yet.

        Nothing waits for this shim any more; a stop notice ends the wait.
        """
        await asyncio.gather(self._send_unsent(), self.spans.stop())

    async def _send_unsent(self) -> None:
        if records := await self._telemetry.close():
            is_kept = self._unsent.keep(records)
            how = "is kept until Kafka is available" if is_kept else "is lost"
            _logger.warning("not all telemetry was sent: the rest %s", how)
        rest = asyncio.create_task(self._unsent.send())
        notified = asyncio.create_task(self._is_notified.wait())
        await asyncio.wait({rest, notified}, return_when=asyncio.FIRST_COMPLETED)
        for task in (rest, notified):
            task.cancel()
        await asyncio.gather(rest, notified, return_exceptions=True)

    def tail(self, rank: int | None) -> str:
        """The last output of a rank; of the pod's first rank where none is named."""
        log = self._logs.get(rank if rank is not None else min(self._logs))
        return "" if log is None else log.tail.decode("utf-8", "replace")[-8192:]

    def explain(self, end: RankExit, world_size: int) -> failures.Explained:
        """Why this rank failed. To be called when the pod's output is complete."""
        used = failures.Memory(
            self._peak_bytes.get(end.rank, 0),
            memory.limit_bytes(),
            self._is_out_of_memory,
            (self._spec.memory_bytes or 0) if memory.has_killed(self._spec.groups) else 0,
        )
        return failures.explain(end, self.tail(end.rank), used, world_size=world_size)

    @property
    def _has_failed_by_itself(self) -> bool:
        failed = outcome.first_failed(self.ends)
        if failed is None or self.notice is not None:
            return False
        kind = self.explain(failed, 1).kind
        return kind in (FailureKind.EXCEPTION, FailureKind.EXIT_CODE)

    def failure(self, kind: FailureKind) -> Failure:
        return Failure(kind=kind, step=self._progress.step, has_saved=self._has_saved)

    def say(self, text: str) -> None:
        """Add a line to the output of the pod's first rank. From any thread."""
        line = f"drivetrain: {text}".encode("utf-8", "replace")
        _logger.info("said to the owner: %s", text)
        self._loop.call_soon_threadsafe(self._add_own_line, line)

    def note(self, beginning: str) -> None:
        """The same for what the attempt begins with, which the job's page shows too."""
        self.say(beginning)
        self._warn(Warned(BEGINS_WITH, beginning))

    def send_system(self, step: int, values: Mapping[str, float]) -> None:
        """Send what the pod uses; without room in the buffer it is dropped. From any thread."""
        record = self._events.system(min(self._logs), step, values)
        self._loop.call_soon_threadsafe(self._telemetry.put, record)

    def _add_own_line(self, line: bytes) -> None:
        self._keep(line + b"\n")
        # Not among the last words of a failed rank, which are its own.
        self._logs[min(self._logs)].say(line, time.monotonic())

    def _say_if_alone(self) -> None:
        if warning := self._alone.look(time.monotonic(), self._have_succeeded):
            self._say_warning(Warned("ranks_apart", warning))

    def _say_what_was_left_out(self) -> None:
        if num := self._told.num_alerts_left_out:
            detail = f"{num} alerts were left out: a pod raises {MAX_ALERTS} in a run"
            self._say_warning(Warned("alerts_left_out", detail))

    def _say_what_had_no_effect(self) -> None:
        """At the end of a program without the package, which warns of the same."""
        if self._uses_package or not self._have_succeeded or 0 not in self._logs:
            return
        has_metric = (
            self.reported.best is not None or (self._notices.directory / "result.json").exists()
        )
        for warning in without_effect(self._spec.job, self._has_saved, has_metric):
            self._say_warning(warning)

    @property
    def _have_succeeded(self) -> bool:
        codes = [end.exit_code for end in self.ends]
        return codes == [0] * len(self._ranks)

    def _say_warning(self, warning: Warned) -> None:
        _logger.warning("warned: %s", warning.warning)
        self._add_own_line(f"drivetrain: warning: {warning.detail}".encode())
        self._warn(warning)

    def _save_by(self) -> float:
        """Until when the files may be saved, by the monotonic clock: a notice has a deadline."""
        if self._is_notified.is_set():
            return 0.0
        if self.notice is None or self._kill_at is None:
            return float("inf")
        return self._kill_at + SAVE_AFTER_DEADLINE_SECONDS

    # Processes

    def _reap(self) -> None:
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:  # no child is left, so no descendant is
                self._is_gone.set()
                return
            if pid == 0:
                return
            if pid in self._ranks and not self._has_ended(self._ranks[pid].rank):
                rank = self._ranks[pid].rank
                self._peak_bytes[rank] = usage.ru_maxrss * 1024
                self._on_rank_end(outcome.rank_exit(rank, status))

    def _has_ended(self, rank: int) -> bool:
        return any(end.rank == rank for end in self.ends)

    def _on_rank_end(self, end: RankExit) -> None:
        if end.signal == signal.SIGKILL and not self.ends:
            self._is_out_of_memory = memory.num_killed() > self._num_killed[0]
        self.ends.append(end)
        _logger.info("rank ended: rank=%d exit=%s signal=%s", end.rank, end.exit_code, end.signal)
        if self.notice is not None:
            return  # its deadline holds for what the ranks leave behind, too
        if outcome.has_failed(end):
            self._kill_in(GRACE_AFTER_FAILURE_SECONDS)
        if len(self.ends) == len(self._ranks):
            self._kill_in(GRACE_FOR_LEFTOVERS_SECONDS)

    def _kill(self) -> None:
        memory.close(self._spec.groups)
        processes.kill_descendants()

    def _kill_in(self, seconds: float) -> None:
        moment = time.monotonic() + seconds
        self._kill_at = moment if self._kill_at is None else min(self._kill_at, moment)

    def _on_notice(self) -> None:
        if self._is_gone.is_set():
            self._is_notified.set()
            return
        notice = self._notices.read()
        if notice == self.notice:
            return  # sent again, by a scheduler that was restarted
        self.notice = notice
        _logger.info("stop notice: %s, %s s", self.notice.reason, self.notice.deadline_seconds)
        try:
            write_atomically(self._notices.directory / TAKEN, notice.model_dump_json())
        except OSError as error:  # the ranks then save, and take the usual time for it
            _logger.error("the notice is not passed on to the ranks: %s", error)
        self._kill_in(self.notice.deadline_seconds)
        self._stop_signal.send()

    async def _tick(self) -> None:
        """Find a notice, enforce deadlines, forward logs, send a heartbeat once a second."""
        next_beat = 0.0
        while True:
            now = time.monotonic()
            if self.notice is None and self._notices.is_given():
                self._on_notice()  # its signal came too early, or never
            if self._kill_at is not None and now >= self._kill_at:
                self._kill()
            self._say_if_alone()
            self._forward_logs()
            if now >= next_beat:
                next_beat = now + 1.0
                self._num_killed = (self._num_killed[1], memory.num_killed())
                if self.notice is not None:
                    self._stop_signal.send()
                self._beat(self._phase)
            await asyncio.sleep(_TICK_SECONDS)

    # Output

    def _read(self, rank: Rank) -> bool:
        try:
            data = os.read(rank.output, 65536)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(rank.output)
            return False
        if self._doing is not None:
            self._lively_at = time.monotonic()
        self._keep(data)
        self._logs[rank.rank].feed(data, time.monotonic())
        return True

    def _keep(self, data: bytes) -> None:
        with suppress(OSError, ValueError):  # a full disk must not end the pod
            if self._log_file is not None:
                self._log_file.write(data)

    def _forward_logs(self, is_last: bool = False) -> None:
        for log in self._logs.values():
            for chunk in log.take(time.monotonic(), is_last):
                if not self._telemetry.put(self._events.logs(chunk)):
                    log.num_dropped_bytes += chunk.size_bytes

    @property
    def _phase(self) -> str:
        return "stopping" if self.notice is not None else self._progress.state

    def _beat(self, phase: str) -> None:
        self._num_heartbeats += 1
        record = self._events.heartbeat(
            self._num_heartbeats,
            phase=phase,
            doing=self._doing,
            quiet_seconds=self._lively_at and time.monotonic() - self._lively_at,
            step=self._progress.step,
            max_steps=self._progress.max_steps,
            epoch=self._progress.epoch,
            num_dropped_samples=sum(self._num_dropped.values()),
            num_refused_samples=sum(self._num_refused.values()),
            num_dropped_log_bytes=sum(log.num_dropped_bytes for log in self._logs.values()),
        )
        self._telemetry.put_heartbeat(record)

    # The ranks' socket

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        self._alone.is_together()
        try:
            while line := await reader.readline():
                try:
                    self._take(decoder.decode(line), writer)
                except Exception as error:  # of a newer package, or of no package of ours
                    _logger.warning("a message is ignored: %.1000r", error)
        except (ValueError, OSError) as error:  # an endless line, or a rank that was killed
            _logger.warning("a rank's connection is closed: %s", error)
        finally:
            self._connections.discard(task)
            writer.close()

    async def _drain_connections(self) -> None:
        """All writers have ended, so what they sent has arrived and each connection soon ends."""
        if self._connections:
            await asyncio.wait(self._connections, timeout=1.0)
        for task in self._connections:
            task.cancel()

    def _take(self, message: Message, writer: asyncio.StreamWriter) -> None:
        # `drivetrain report` of any program sends no more than these.
        is_report = (isinstance(message, Samples) and message.is_result) or (
            isinstance(message, Warned) and message.warning == ALERT
        )
        if not is_report and not isinstance(message, StepProgress | PhaseBegun):
            self._uses_package = True
        self.spans.take(message)
        if isinstance(message, Samples):
            self._take_samples(message, writer)
        elif isinstance(message, StepProgress):
            self._take_progress(message, writer)
        elif isinstance(message, PhaseBegun):
            if message.name != self._doing:
                self._doing, self._lively_at = message.name, time.monotonic()
        elif isinstance(message, CheckpointSaved):
            self._has_saved = True
            self._telemetry.put(self._events.checkpoint(message))
        elif isinstance(message, SaveFailed):
            self._telemetry.put(self._events.save_failed(message))
        elif isinstance(message, Warned):
            self._warn(message)
        elif isinstance(message, MediaSaved):
            self._telemetry.put(self._events.media(message))
        elif isinstance(message, Described):
            self._telemetry.put(self._events.described(message))
        else:
            self._telemetry.put(self._events.resumed(message))

    def _warn(self, message: Warned) -> None:
        if self._told.is_new(message):
            self._telemetry.put(self._events.warned(message))

    def _take_samples(self, message: Samples, writer: asyncio.StreamWriter) -> None:
        ack = Ack(message.run_id, message.session, message.batch)

        def acknowledge() -> None:
            if not writer.is_closing():
                writer.write(encode_line(ack))

        if message.is_result:
            try:
                self._note_result(message)
            except Exception:
                acknowledge()  # no process could read it
                raise
        if not self._telemetry.put(self._events.samples(message), acknowledge):
            self._num_dropped["shim"] = self._num_dropped.get("shim", 0) + message.num_samples
            acknowledge()  # not to be sent again

    def _take_progress(self, message: StepProgress, writer: asyncio.StreamWriter) -> None:
        if message.num_dropped:
            self._num_dropped[writer] = message.num_dropped
        if message.num_refused:
            self._num_refused[writer] = message.num_refused
        if message.state not in _PHASES or (message.step or 0) < (self._progress.step or 0):
            return
        was_starting = self._progress.state == "starting"
        if not 0 <= (message.max_steps or 0) <= MAX_ORDINAL:
            message.max_steps = None  # a program without a known end
        is_started = bool(message.step)
        self._progress = message if is_started else StepProgress(message.step, state="starting")
        if was_starting and is_started:
            self._beat(self._phase)

    def _note_result(self, message: Samples) -> None:
        columns = json.loads(bytes(message.columns))
        series = {
            name: (column["steps"], [float(value) for value in column["values"]])
            for name, column in columns.items()
        }
        steps = [step for column in series.values() for step in column[0]]
        if not all(type(step) is int and 0 <= step <= MAX_ORDINAL for step in steps):
            raise ValueError(f"a step is not a whole number from 0 to {MAX_ORDINAL}")
        self.reported.take(series)
        self.reported_step = max(self.reported_step, *steps)


def _standing(spec: PodSpec) -> LastAndBest:
    metric = spec.job.metric
    if metric is None:
        return LastAndBest()
    return LastAndBest(metric.name, is_maximized=metric.goal is Goal.MAXIMIZE)
