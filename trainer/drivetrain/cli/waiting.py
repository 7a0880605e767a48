"""Waiting for a job or study to end, and showing how far it is.

The platform is asked once a second and may be away meanwhile: nothing is lost by that, for what is
waited for does not run here. Only a long silence ends the waiting, with the code of an unreachable
platform. Bars are drawn on a terminal; elsewhere a line is written whenever something has changed.
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
# A line at every tenth of the way is enough for a log file.
LINES_PER_RUN = 10

FINAL_JOB_STATES = frozenset({"succeeded", "failed", "cancelled", "stopped", "rejected"})
FINAL_STUDY_STATES = frozenset({"completed", "failed", "rejected"})


@dataclass(frozen=True, slots=True)
class Standing:
    """How far something is: `note` changes rarely, `eta_seconds` all the time."""

    state: str
    done: int | None = None
    total: int | None = None
    unit: str = "step"
    eta_seconds: float | None = None
    note: str = ""


class Display(Protocol):
    def show(self, standing: Standing) -> None: ...


def wait(
    fetch: Callable[[], Item],
    standing_of: Callable[[Item], Standing],
    final: frozenset[str],
    hint: str,
) -> Item:
    """Ask until the state is a final one; returns the last answer. `hint` is for who has enough."""
    try:
        return _wait(fetch, standing_of, final)
    except Interrupted:
        write_note(hint)
        raise


def _wait(
    fetch: Callable[[], Item], standing_of: Callable[[Item], Standing], final: frozenset[str]
) -> Item:
    with _open_display() as display:
        silent_since: float | None = None
        while True:
            try:
                item = fetch()
            except (Unreachable, NotFound):
                # While the gateway rebuilds its view, it does not know the job for a while.
                silent_since = silent_since or time.monotonic()
                if time.monotonic() - silent_since > GIVE_UP_SECONDS:
                    raise
                display.show(Standing("the platform does not answer; it is asked again"))
            else:
                silent_since = None
                standing = standing_of(item)
                display.show(standing)
                if standing.state in final:
                    return item
            time.sleep(POLL_SECONDS)


def standing_of_job(job: Item) -> Standing:
    progress: Any = job.get("progress") or {}
    notes = []
    if (job.get("attempt") or 1) > 1:
        notes.append(f"attempt {job['attempt']}")
    if job.get("waiting"):
        notes.append(job["waiting"]["detail"])
    if job.get("is_cancelling"):
        notes.append("being cancelled")
    return Standing(
        state=job["state"],
        done=progress.get("step"),
        total=progress.get("max_steps"),
        eta_seconds=None if job["state"] in FINAL_JOB_STATES else progress.get("eta_seconds"),
        note="; ".join(notes),
    )


def standing_of_study(study: Item) -> Standing:
    best = study.get("best_value")
    return Standing(
        state=study["state"],
        done=study["num_completed"] + study["num_failed"],
        total=study.get("num_trials"),
        unit="trial",
        note="" if best is None else f"best {study.get('metric')} {best:.6g}",
    )


class PlainLines:
    """A line on standard error when the state, the note or the tenth of the way has changed."""

    def __init__(self) -> None:
        self._last: tuple[str, str, int] | None = None

    def show(self, standing: Standing) -> None:
        tenth = 0
        if standing.done is not None and standing.total:
            tenth = standing.done * LINES_PER_RUN // standing.total
        change = (standing.state, standing.note, tenth)
        if change != self._last:
            self._last = change
            write_note(in_words(standing))


def in_words(standing: Standing) -> str:
    """'running: step 120/400, 42 s left, attempt 2'."""
    parts = []
    if standing.done is not None:
        parts.append(f"{standing.unit} {amounts.steps(standing.done, standing.total)}")
    if standing.eta_seconds is not None:
        parts.append(f"{amounts.duration(standing.eta_seconds)} left")
    if standing.note:
        parts.append(standing.note)
    return f"{standing.state}: {', '.join(parts)}" if parts else standing.state


class Bar:
    """A bar with the time that is left, on a terminal."""

    def __init__(self, progress: Any) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, details="")

    def show(self, standing: Standing) -> None:
        details = in_words(standing).partition(": ")[2]
        self._progress.update(
            self._task,
            description=clean(standing.state),
            total=standing.total,
            completed=standing.done or 0,
            details=clean(details).replace("\n", " "),
        )


def _open_display() -> AbstractContextManager[Display]:
    if not is_lively(sys.stderr, os.environ):
        return nullcontext(PlainLines())
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
