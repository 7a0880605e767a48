"""What a rank reports: samples and progress, to its shim or to a local file.

`Reporter.log` only appends to a bounded queue. One background thread sorts the samples into
batches, sends them, handles acknowledgements, and reports progress once a second. Nothing here
blocks or fails training: samples that do not fit are counted as dropped, and those that are not
numbers or have no valid name as refused, with a warning per name. At most 4 MiB are in flight at a
time; a checkpoint saves them (`unacknowledged`), and a resumed run sends them again
under their old numbers, which makes duplicates harmless.
"""

import logging
import math
import os
import secrets
import select
import socket
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec

from drivetrain import control
from drivetrain.environment import Environment
from drivetrain.messages import (
    Described,
    MediaSaved,
    Message,
    PhaseBegun,
    Samples,
    StepProgress,
    Warned,
    ack_decoder,
    decoder,
    encode_line,
)
from drivetrain.samples import (
    MAX_SAMPLES_PER_CHUNK,
    NOT_A_NAME,
    Columns,
    Flat,
    LastAndBest,
    num_samples_of,
)
from drivetrain_schemas.reports import ALERT, alert_detail
from drivetrain_schemas.specs import MAX_LAST_VALUES
from drivetrain_schemas.system_series import STEP_WORK

MAX_WAITING_SAMPLES = 200_000
MAX_LOGGED = 3 * MAX_WAITING_SAMPLES  # each is three items
MAX_UNACKNOWLEDGED_BYTES = 4 * 1024 * 1024
MAX_WARNINGS = 20
_PERIOD_SECONDS = 0.25
_PROGRESS_SECONDS = 1.0
_OWN_WORK_SECONDS = 10.0
_samples_decoder: msgspec.json.Decoder[Samples] = msgspec.json.Decoder(Samples)
_logger = logging.getLogger("drivetrain")

Key = tuple[str, str, int]  # run, session, batch number


def capture(value: Any) -> Any:
    """The current value, without waiting for a device; None if it is not a number."""
    try:
        if hasattr(value, "detach"):
            return value.item() if value.device.type == "cpu" else value.detach().clone()
        return float(value)
    except Exception:  # any value may raise, and training continues
        return None


class Sink(Protocol):
    """Where lines are sent. `acknowledged` returns what has arrived, without waiting."""

    def send(self, line: bytes) -> bool: ...
    def acknowledged(self) -> list[Key]: ...
    def close(self) -> None: ...


class Reporter:
    """The reporting of one rank."""

    def __init__(
        self,
        environment: Environment,
        sink: Sink,
        last_and_best: LastAndBest,
        progress: Callable[[], StepProgress],
        own_work: Callable[[], float | None] = lambda: None,
    ) -> None:
        self._run: dict[str, Any] = {
            "run_id": environment.run_id,
            "attempt": environment.attempt,
            "fence": environment.fence,
            "rank": environment.rank,
        }
        self._sink = sink
        self._progress = progress
        self._own_work = own_work
        self._is_local = environment.is_local
        self._own_work_at = time.monotonic()
        self.last_and_best = last_and_best
        self.num_dropped = 0
        self.num_refused = 0
        self._warnings: dict[str, str] = {}
        self._has_failed = False
        self._has_said_left_out = False
        self._sent_at, self._sent_step = -math.inf, 0
        self._session = secrets.token_hex(8)
        self._next_batch = 0
        self._logged: Flat = []
        self._sorted: deque[Columns] = deque()
        self._num_sorted = 0
        self._unacknowledged: OrderedDict[Key, bytes] = OrderedDict()
        self._to_send: deque[bytes] = deque()
        self._lock = threading.Lock()
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._work, name="drivetrain-report", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        logged = self._logged
        if len(logged) >= MAX_LOGGED:
            self.settle()  # the thread is too slow; samples are dropped from columns
        for name in values:  # a fifth faster than items(), which makes a tuple for each
            value = values[name]
            logged += step, name, value if type(value) is float else capture(value)

    def send(self, message: Message) -> None:
        """Send one message of another kind (a checkpoint, a resume) in the order of the rest."""
        self._to_send.append(encode_line(message))

    def warn(self, warning: str, detail: str) -> None:
        """Warn of a misuse: in the log and, on the platform, on the job's page. Once per detail."""
        if detail not in self._warnings and len(self._warnings) < MAX_WARNINGS:
            self._warnings[detail] = warning
            _logger.warning("%s", detail)
            self.send(Warned(warning, detail))

    def alert(self, detail: str) -> None:
        """Raise an alert: in the log each time; of how many there may be, the shim decides."""
        _logger.warning("alert: %s", detail)
        self.send(Warned(ALERT, detail))

    def has_warned(self, warning: str) -> bool:
        return warning in self._warnings.values()

    def settle(self) -> None:
        """Sort everything logged so far, so that `last_and_best` is exact."""
        with self._lock:
            self._sort()

    def unacknowledged(self) -> list[dict[str, Any]]:
        """The batches that were not acknowledged yet, for the checkpoint."""
        with self._lock:
            self._sort()
            self._cut(MAX_UNACKNOWLEDGED_BYTES)
            return [msgspec.json.decode(line) for line in self._unacknowledged.values()]

    def resend(self, messages: Sequence[dict[str, Any]]) -> None:
        """Send the batches of an earlier run again, under their old numbers."""
        with self._lock:
            for message in messages:
                self._enqueue(_samples_decoder.decode(msgspec.json.encode(message)))

    def close(self, seconds: float) -> None:
        """Send what is left, within the given time."""
        self._is_closing.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        self._sink.close()

    def _work(self) -> None:
        while not self._is_closing.is_set():
            self._try(self._take_turn)
        self._try(self._end)

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:
            if not self._has_failed:
                _logger.exception("reporting failed and is retried; training continues")
            self._has_failed = True
            self._is_closing.wait(_PROGRESS_SECONDS)

    def _take_turn(self) -> None:
        progress = self._progress()
        is_first_step = self._sent_step == 0 < (progress.step or 0)
        if is_first_step or time.monotonic() - self._sent_at >= _PROGRESS_SECONDS:
            self.send(progress)
            self._sent_at, self._sent_step = time.monotonic(), (progress.step or 0)
        if time.monotonic() - self._own_work_at >= _OWN_WORK_SECONDS:
            self._own_work_at = time.monotonic()
            self._log_own_work()
        self._pass_on(MAX_UNACKNOWLEDGED_BYTES)
        self._is_closing.wait(_PERIOD_SECONDS)
        self._forget(self._sink.acknowledged())

    def _end(self) -> None:
        self.send(self._progress())
        self._log_own_work()
        self._pass_on(sys.maxsize)

    def _log_own_work(self) -> None:
        """As a system series of this rank; a local run has none."""
        seconds = self._own_work()
        if seconds is None or self._is_local:
            return
        column = {"steps": [int(time.time())], "values": [round(seconds, 6)]}
        with self._lock:
            self._enqueue(self._message({STEP_WORK: column}))

    def _pass_on(self, max_bytes: int) -> None:
        with self._lock:
            self._cut(max_bytes)
        while self._to_send:
            if not self._sink.send(self._to_send[0]):
                self._to_send.clear()  # the shim is gone
                return
            self._to_send.popleft()

    def _sort(self) -> None:
        """Put what was logged into columns."""
        while self._logged:
            # Each of the two is atomic, and other threads only append.
            chunk = self._logged[: 3 * MAX_SAMPLES_PER_CHUNK]
            del self._logged[: len(chunk)]
            try:
                columns = Columns.of(chunk)
            except Exception:
                _logger.exception("samples are dropped; training continues")
                self.num_dropped += len(chunk) // 3
                continue
            self._warn_once_of(self.last_and_best.take(columns.series))
            self.num_refused += columns.num_refused
            self._warn_of(columns.refusals)
            if "step" in columns.series:
                self.warn(
                    "step_logged",
                    "run.log(step=...) logs a metric named step: the loop counts the steps itself,"
                    " so leave it out",
                )
            if self._num_sorted + columns.num_samples > MAX_WAITING_SAMPLES:
                self.num_dropped += columns.num_samples
            elif columns.num_samples:
                self._sorted.append(columns)
                self._num_sorted += columns.num_samples

    def _warn_of(self, refusals: Mapping[Any, str]) -> None:
        for name, reason in refusals.items():
            what = f"{name!r:.200}" if reason == NOT_A_NAME else f"a value of {name!r:.200}"
            self.warn("refused_samples", f"{what} {reason}; such values are left out")

    def _warn_once_of(self, left_out: list[str]) -> None:
        if left_out and not self._has_said_left_out:
            self._has_said_left_out = True
            self.warn(
                "many_series",
                f"results and checkpoints contain the last values of the first {MAX_LAST_VALUES} "
                f"series; left out: {len(left_out)}, such as {left_out[0]}",
            )

    def _cut(self, max_bytes: int) -> None:
        """Make batches, while less than `max_bytes` is in flight."""
        size = sum(map(len, self._unacknowledged.values()))
        if size < max_bytes:
            self._sort()
        while size < max_bytes and self._sorted:
            columns = self._sorted.popleft()
            self._num_sorted -= columns.num_samples
            for piece in columns.to_json():
                size += self._enqueue(self._message(piece))

    def _message(self, columns: dict[str, Any]) -> Samples:
        number = self._next_batch
        self._next_batch += 1
        return Samples(
            **self._run,
            session=self._session,
            batch=number,
            columns=msgspec.Raw(msgspec.json.encode(columns)),
            num_samples=num_samples_of(columns),
        )

    def _enqueue(self, message: Samples) -> int:
        line = encode_line(message)
        self._unacknowledged[(message.run_id, message.session, message.batch)] = line
        self._to_send.append(line)
        return len(line)

    def _forget(self, keys: Sequence[Key]) -> None:
        with self._lock:
            for key in keys:
                self._unacknowledged.pop(key, None)


class ShimSink:
    """The shim's socket. After it breaks nothing more is sent, and nothing fails."""

    def __init__(self, path: str) -> None:
        self._lines = control.Lines()
        self._readable = select.poll()
        self._socket: socket.socket | None = None
        try:
            self._socket = control.connect(path)
            self._socket.settimeout(30)
            self._readable.register(self._socket, select.POLLIN)
        except OSError as error:
            _logger.warning("cannot connect to the shim; samples are not sent: %s", error)

    def send(self, line: bytes) -> bool:
        if self._socket is None:
            return False
        try:
            self._socket.sendall(line)
        except OSError:
            self._drop()
            return False
        return True

    def acknowledged(self) -> list[Key]:
        if self._socket is None:
            return []
        try:
            if not self._readable.poll(0):
                return []
            data = self._socket.recv(65536)
            if not data:
                raise ConnectionResetError
            acks = [ack_decoder.decode(line) for line in self._lines.feed(data)]
        except (OSError, ValueError):
            self._drop()
            return []
        return [(ack.run_id, ack.session, ack.batch) for ack in acks]

    def close(self) -> None:
        """Read until the end: a socket closed with unread bytes loses the bytes it has sent."""
        if self._socket is None:
            return
        try:
            self._socket.settimeout(2)
            self._socket.shutdown(socket.SHUT_WR)
            while self._socket.recv(65536):
                continue
        except OSError as error:
            _logger.warning("the last samples may be lost: %s", error)
        self._drop()

    def _drop(self) -> None:
        endpoint, self._socket = self._socket, None
        if endpoint is not None:
            endpoint.close()


class FileSink:
    """A local run's `samples.jsonl`, `media.jsonl` and `surroundings.jsonl`, as lines come."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._written: list[Key] = []

    def send(self, line: bytes) -> bool:
        message = decoder.decode(line)
        names = {MediaSaved: "media.jsonl", Described: "surroundings.jsonl"}
        if isinstance(message, Samples | MediaSaved | Described):
            name = names.get(type(message), self._path.name)
            try:
                with self._path.with_name(name).open("ab") as file:
                    file.write(line)
            except OSError as error:
                _logger.warning("samples are not written: %s", error)
                return False
        if isinstance(message, Samples):
            self._written.append((message.run_id, message.session, message.batch))
        return True

    def acknowledged(self) -> list[Key]:
        written, self._written = self._written, []
        return written

    def close(self) -> None:
        return


def report(
    values: Mapping[str, float],
    step: int | None = None,
    phase: str | None = None,
    alert: str | None = None,
) -> bool:
    """Report values once, from any program inside a pod. False outside of a pod.

    `phase` names what it does from now on, until a report without one (or of an alert alone).

    If the program writes no `result.json`, the shim uses the last and best values reported in this
    way as the run's result.
    """
    path = os.environ.get("DRIVETRAIN_CONTROL_SOCKET")
    if path is None:
        return False
    logged: Flat = []
    for name, value in values.items():
        logged += (step or 0, name, value)
    columns = Columns.of(logged)
    session = secrets.token_hex(8)
    lines = [
        encode_line(
            Samples(
                run_id=os.environ["DRIVETRAIN_RUN_ID"],
                attempt=int(os.environ["DRIVETRAIN_ATTEMPT"]),
                fence=int(os.environ["DRIVETRAIN_FENCE"]),
                rank=int(os.environ.get("RANK", "0")),
                session=session,
                batch=number,
                columns=msgspec.Raw(msgspec.json.encode(piece)),
                num_samples=num_samples_of(piece),
                is_result=True,
            )
        )
        for number, piece in enumerate(columns.to_json())
    ]
    if step is not None:
        lines.append(encode_line(StepProgress(step=step)))
    if alert is not None:
        lines.append(encode_line(Warned(ALERT, alert_detail(alert))))
    if alert is None or values or phase is not None:
        lines.append(encode_line(PhaseBegun(phase)))
    with control.connect(path) as endpoint:
        endpoint.settimeout(10)
        endpoint.sendall(b"".join(lines))
    return columns.num_refused == 0
