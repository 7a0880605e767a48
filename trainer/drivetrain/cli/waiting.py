"""Waiting for a job or study to end, and showing how far it is.

The platform is polled once a second and may be unavailable in between: nothing is lost, because the
job does not run in this process. Waiting ends only after the platform has not responded for a long
time, with the exit code of an unreachable platform. On a terminal a bar is drawn; elsewhere a line
is written after each change.
"""

import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

from drivetrain.cli import amounts
from drivetrain.cli.errors import Interrupted, NotFound, Unreachable
from drivetrain.cli.output import Item, clean, is_lively, write_note

POLL_SECONDS = 1.0
GIVE_UP_SECONDS = 15 * 60.0
# One line per tenth of the steps is enough for a log file.
LINES_PER_RUN = 10

FINAL_JOB_STATES = frozenset({"succeeded", "failed", "cancelled", "stopped", "rejected"})
FINAL_STUDY_STATES = frozenset({"completed", "failed", "cancelled", "rejected"})


@dataclass(frozen=True, slots=True)
class Status:
    """How far something is: `note` changes rarely, `eta_seconds` all the time."""

    state: str
    done: int | None = None
    total: int | None = None
    unit: str = "step"
    eta_seconds: float | None = None
    note: str = ""


class Display(Protocol):
    def show(self, status: Status) -> None: ...


def wait(
    fetch: Callable[[], Item],
    status_of: Callable[[Item], Status],
    final: frozenset[str],
    hint: str,
) -> Item:
    """Poll until the state is final; returns the last response. `hint` is printed on Ctrl-C."""
    try:
        return _wait(fetch, status_of, final)
    except Interrupted:
        write_note(hint)
        raise


def _wait(
    fetch: Callable[[], Item], status_of: Callable[[Item], Status], final: frozenset[str]
) -> Item:
    with _open_display(final) as display:
        silent_since: float | None = None
        while True:
            try:
                item = fetch()
            except (Unreachable, NotFound) as error:
                # While the gateway rebuilds its view, it does not know the job for a while.
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > GIVE_UP_SECONDS:
                    raise
                display.show(Status(f"{error.message}; retrying"))
            else:
                silent_since = None
                status = status_of(item)
                display.show(status)
                if status.state in final:
                    return item
            time.sleep(POLL_SECONDS)


def status_of_job(job: Item) -> Status:
    progress: Any = job.get("progress") or {}
    notes = []
    if (job.get("attempt") or 1) > 1:
        notes.append(f"attempt {job['attempt']}")
    if job.get("waiting"):
        notes.append(job["waiting"]["detail"])
    if job.get("is_cancelling"):
        notes.append("being cancelled")
    if job.get("is_stopping"):
        notes.append("being stopped")
    if job.get("is_pausing"):
        notes.append("being paused")
    return Status(
        state=job["state"],
        done=progress.get("step"),
        total=progress.get("max_steps"),
        eta_seconds=None if job["state"] in FINAL_JOB_STATES else progress.get("eta_seconds"),
        note="; ".join(notes),
    )


def num_ended(study: Item) -> int:
    """Trials that have ended, with a value or without."""
    return int(study["num_completed"] + study["num_failed"] + study.get("num_stopped", 0))


def status_of_study(study: Item) -> Status:
    best = study.get("best_value")
    notes = [] if best is None else [f"best {study.get('metric')} {amounts.number(best)}"]
    notes += ["being cancelled"] if study.get("is_cancelling") else []
    return Status(
        state=study["state"],
        done=num_ended(study),
        total=study.get("num_trials"),
        unit="trial",
        note="; ".join(notes),
    )


class PlainLines:
    """A line on standard error when the state, the note or the progress in tenths has changed.

    None for a final state: the result follows, and says it in full.
    """

    def __init__(self, final: frozenset[str]) -> None:
        self._final = final
        self._last: tuple[str, str, int] | None = None

    def show(self, status: Status) -> None:
        if status.state in self._final:
            return
        tenth = 0
        if status.done is not None and status.total:
            tenth = status.done * LINES_PER_RUN // status.total
        change = (status.state, status.note, tenth)
        if change != self._last:
            self._last = change
            write_note(as_text(status))


def as_text(status: Status) -> str:
    """'running: step 120/400, 42 s left, attempt 2'."""
    parts = []
    if status.done is not None:
        parts.append(f"{status.unit} {amounts.steps(status.done, status.total)}")
    if status.eta_seconds is not None:
        parts.append(f"{amounts.duration(status.eta_seconds)} left")
    if status.note:
        parts.append(status.note)
    return f"{status.state}: {', '.join(parts)}" if parts else status.state


class Bar:
    """A bar with the time that is left, on a terminal."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, details="")

    def show(self, status: Status) -> None:
        details = as_text(status).partition(": ")[2]
        self._progress.update(
            self._task,
            description=clean(status.state),
            total=status.total,
            completed=status.done or 0,
            details=clean(details).replace("\n", " "),
        )


def _open_display(final: frozenset[str]) -> AbstractContextManager[Display]:
    if not is_lively(sys.stderr, os.environ):
        return nullcontext(PlainLines(final))
    return _LiveBar()


class _LiveBar(AbstractContextManager[Display]):
    def __enter__(self) -> Display:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[details]}", markup=False),
            console=Console(stderr=True),
        )
        self._progress.start()
        return Bar(self._progress)

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
