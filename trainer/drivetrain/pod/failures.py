"""Why a rank failed, from how it ended and what it printed last. Pure.

In: the rank's exit, the end of its output, its memory. Out: one sentence, and its kind, by which
the scheduler decides whether the job is tried again. The output is any program's: what is not
recognized is reported as an exit code or a signal.
"""

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from drivetrain import errors
from drivetrain_schemas.pods import FailureKind, RankExit

MAX_REASON_CHARACTERS = 1000
# What a program prints after an uncaught exception, while it ends.
_MAX_LINES_AFTER = 40
_HEADER = "Traceback (most recent call last):"
# torchrun and torch.distributed put the rank in front of each line.
_PREFIX = re.compile(r"^\[(?:rank|default)\d+\]: ?")
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(?:: .*|:)?$")
_SYNTAX = re.compile(r"^(?:SyntaxError|IndentationError|TabError): ")
_FRAME = re.compile(r'^  File "(?P<file>.*)", line (?P<line>\d+) in (?P<function>.*)$')
# Launchers raise these after an error of the program that they started.
_CONSEQUENCES = ("ChildFailedError", "CalledProcessError", "RaisedException", "ExitedException")
# How they tell the end of what they started: torchrun's summary, subprocess, torch.multiprocessing.
_ROOT_CAUSE = "Root Cause (first observed failure):"
_RANK_OF_CAUSE = re.compile(r"^  rank +: (\d+) ")
_ENDED = re.compile(
    r"^  exitcode +: (-?\d+) |died with <Signals\.(SIG\w+):|terminated with signal (SIG\w+)"
)
_MISSING = re.compile(
    r"can't open file |: No module named |: cannot open |: (?:command )?not found$"
    r"|^\S+: (?:No such file or directory|Permission denied)$|sh: .*: No such file or directory$"
)
# What argparse, click and most other programs print about their own command line.
_USAGE = re.compile(r"^usage: ", re.I)
_REFUSED = re.compile(r"^(?:\S+: )?error: ", re.I)
_WRONG_USAGE = 2
# By the kernel, a shell, or a program that says it of one that it started.
_KILLED = re.compile(r"SIGKILL|exit code 137|\bkilled\b", re.I)
_NEVER_PASSES = ("ModuleNotFoundError", "SyntaxError", "IndentationError", "TabError")
_OUT_OF_MEMORY = re.compile(r"out of memory|can't allocate memory|Unable to allocate", re.I)
_OUTSIDE = re.compile(
    r"connect|timed? ?out|unavailable|unreachable|network|socket|broken pipe|reset by peer"
    r"|no space left|disk quota|input/output error|stale file|too many open files"
    r"|nccl|gloo|cuda|cudnn|cublas|\bhttp|\bssl|resolve|temporar",
    re.I,
)


@dataclass(frozen=True, slots=True)
class Memory:
    """The most that the rank's processes used, and what there was. `was_killed`: the kernel killed
    a process for lack of memory meanwhile; one of the pod, where that used more than it may:
    `exceeded_bytes`."""

    peak_bytes: int = 0
    limit_bytes: int = 0
    was_killed: bool = False
    exceeded_bytes: int = 0

    def __str__(self) -> str:
        return f"it used up to {self.peak_bytes / 2**30:.1f} of {self.limit_bytes / 2**30:.1f} GiB"


@dataclass(frozen=True, slots=True)
class Explained:
    kind: FailureKind
    reason: str


def explain(end: RankExit, output: str, memory: Memory, *, world_size: int = 1) -> Explained:
    """The failure of the rank that ended like this; its `output` is the last of its lines."""
    lines = [_PREFIX.sub("", line) for line in output.splitlines()]
    if memory.exceeded_bytes and _KILLED.search(f"{describe(end)}\n{output}"):
        size = f"{memory.exceeded_bytes / 2**30:.3g} GiB (resources.memory_bytes)"
        reason = f"rank {end.rank} was killed because its pod used more than its {size}"
        return Explained(FailureKind.OUT_OF_MEMORY, reason)
    if end.signal is not None:
        return _killed(end, end.signal, lines, memory)
    raised = _last_exception(lines) if end.exit_code == 1 else ""
    if _name(raised).endswith(_CONSEQUENCES) and (started := _end_of_started(end.rank, lines)):
        if started.signal is not None:
            return _killed(started, started.signal, lines, memory)
        return Explained(FailureKind.EXIT_CODE, describe(started))
    found = _by_its_output(end.exit_code or 0, raised, lines, memory)
    if found is None:
        last = _last_line(lines)
        reason = f"{describe(end)} after it printed: {last}" if last else describe(end)
        kind = FailureKind.OUTSIDE if _OUTSIDE.search(last) else FailureKind.EXIT_CODE
        return Explained(kind, reason[:MAX_REASON_CHARACTERS])
    reason = found.reason if world_size == 1 else f"rank {end.rank}: {found.reason}"
    return Explained(found.kind, reason[:MAX_REASON_CHARACTERS])


def describe(end: RankExit) -> str:
    if end.signal is None:
        return f"rank {end.rank} ended with exit code {end.exit_code}"
    try:
        name = signal.Signals(end.signal).name
    except ValueError:
        name = "unknown"
    return f"rank {end.rank} was killed by signal {end.signal} ({name})"


def _last_line(lines: Sequence[str]) -> str:
    """The last line of the program's own; the platform's begin with `drivetrain: `."""
    own = (line.strip() for line in reversed(lines) if not line.startswith("drivetrain: "))
    return next((line for line in own if line), "")


def _killed(end: RankExit, number: int, lines: Sequence[str], memory: Memory) -> Explained:
    if number == signal.SIGKILL:
        if memory.was_killed:
            reason = f"rank {end.rank} was killed because the machine is out of memory: {memory}"
            return Explained(FailureKind.OUT_OF_MEMORY, reason)
        return Explained(FailureKind.SIGNAL, describe(end))
    frame = _last_frame(lines)
    return Explained(FailureKind.SIGNAL, describe(end) + (f" in {frame}" if frame else ""))


def _last_frame(lines: Sequence[str]) -> str:
    """The frame at which Python's faulthandler saw the signal, as `function (file:line)`."""
    starts = [i for i, line in enumerate(lines) if line.startswith("Fatal Python error: ")]
    for line in lines[starts[-1] :] if starts else ():
        if (frame := _FRAME.match(line)) is not None:
            file = frame["file"].rpartition("/")[2]
            return f"{frame['function']} ({file}:{frame['line']})"
    return ""


def _end_of_started(rank: int, lines: Sequence[str]) -> RankExit | None:
    """How a rank ended first that a launcher had started; None where its error does not say it."""
    starts = [number for number, line in enumerate(lines) if line == _ROOT_CAUSE]
    for line in lines[starts[-1] :] if starts else reversed(lines):
        if (found := _RANK_OF_CAUSE.match(line)) is not None:
            rank = int(found[1])
        elif (ended := _ENDED.search(line)) is not None:
            code = -signal.Signals[ended[2] or ended[3]] if ended[1] is None else int(ended[1])
            return RankExit(rank=rank, **({"signal": -code} if code < 0 else {"exit_code": code}))
    return None


def _by_its_output(
    code: int, raised: str, lines: Sequence[str], memory: Memory
) -> Explained | None:
    if raised:
        return _raised(raised, memory)
    if code == _WRONG_USAGE and (refusal := _refused_usage(lines)):
        return Explained(FailureKind.INVALID, refusal)
    missing = [line for line in lines[-3:] if _MISSING.search(line)]
    if missing and code in (1, 2, 126, 127):
        return Explained(FailureKind.INVALID, missing[-1])
    return None


def _refused_usage(lines: Sequence[str]) -> str:
    """The last line, if it says after the usage why the program refuses its arguments."""
    printed = [line for line in lines if line.strip()]
    has_usage = any(_USAGE.match(line) for line in printed)
    return printed[-1] if has_usage and _REFUSED.match(printed[-1]) else ""


def _last_exception(lines: Sequence[str]) -> str:
    """The last line of the last traceback that no launcher raised; empty where there is none."""
    raised = ""
    num_after = 0
    for number, line in enumerate(lines):
        if line == _HEADER:
            text = _after_frames(lines[number + 1 :])
        elif _SYNTAX.match(line):
            text = line
        else:
            num_after += bool(raised)
            continue
        if text and not (raised and _name(text).endswith(_CONSEQUENCES)):
            raised, num_after = text, 0
    return raised if num_after <= _MAX_LINES_AFTER else ""


def _after_frames(lines: Sequence[str]) -> str:
    for number, line in enumerate(lines):
        if line[:1] in (" ", ""):
            continue
        if not _EXCEPTION.match(line):
            return ""
        following = lines[number + 1].strip() if number + 1 < len(lines) else ""
        return f"{line} {following}" if line.endswith(":") and following else line
    return ""


def _name(raised: str) -> str:
    return raised.partition(":")[0]


def _raised(raised: str, memory: Memory) -> Explained:
    module, _, name = _name(raised).rpartition(".")
    if name == "MemoryError" or name == "OutOfMemoryError" or _OUT_OF_MEMORY.search(raised):
        has_numbers = any(character.isdigit() for character in raised)
        reason = raised if has_numbers else f"{raised}: {memory}"
        return Explained(FailureKind.OUT_OF_MEMORY, reason)
    if name in _NEVER_PASSES:
        return Explained(FailureKind.INVALID, raised)
    ours = getattr(errors, name, None) if module == errors.__name__ else None
    if isinstance(ours, type) and issubclass(ours, errors.DrivetrainError):
        can_pass = issubclass(ours, errors.StorageError | errors.CheckpointWriteFailed)
        return Explained(FailureKind.OUTSIDE if can_pass else FailureKind.INVALID, raised)
    is_outside = _OUTSIDE.search(raised) is not None or name == "OSError"
    return Explained(FailureKind.OUTSIDE if is_outside else FailureKind.EXCEPTION, raised)
