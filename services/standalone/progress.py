"""What the terminal shows while the platform starts, runs and stops.

On a terminal: a bar for downloads, a spinner and coloured marks. Elsewhere (a pipe, CI): one plain
line for each change. In: changes of children and downloads. Out: lines on standard
output; no other module of standalone prints.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.status import Status

from services.standalone.child import Child, ChildGaveUp, ChildState
from services.standalone.jars import Jar
from services.standalone.logs import readable

NAME_WIDTH = 12


def is_reported(num_restarts: int) -> bool:
    """The first ten restarts, then every tenth, then every hundredth ..."""
    digits = str(num_restarts)
    return not digits[1:].strip("0")


class Reporter:
    """Lines about the start, the restarts and the stop of the platform."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(highlight=False, soft_wrap=True)
        self._began: dict[str, float] = {}
        self._waiting: dict[str, ChildState] = {}
        self._status: Status | None = None
        self._is_stopping = False

    def _print(self, text: str) -> None:
        # Output that goes to a file on a full disk must not end the platform.
        with suppress(OSError):
            self._console.print(text)

    def line(self, text: str) -> None:
        self._print(escape(text))

    def headline(self, text: str) -> None:
        self._print(f"[bold]{escape(text)}[/bold]")

    @contextmanager
    def downloads(self, title: str, jars: Sequence[Jar]) -> Iterator[Callable[[Jar], None]]:
        """Show the progress of fetching these archives."""
        total = sum(jar.size_bytes for jar in jars)
        if not self._console.is_terminal:
            yield self._plain_downloads(title, total)
            return
        columns = (TextColumn("  {task.description}"), BarColumn(), DownloadColumn())
        with Progress(*columns, TransferSpeedColumn(), console=self._console) as progress:
            task = progress.add_task(title, total=total)
            yield lambda jar: progress.advance(task, jar.size_bytes)

    @contextmanager
    def starting(self) -> Iterator[None]:
        """Show what is being waited for."""
        with self._spinner("starting"):
            yield

    @contextmanager
    def stopping(self, text: str) -> Iterator[None]:
        self._is_stopping = True
        if not self._console.is_terminal:
            self.line(text)
        with self._spinner(text):
            yield

    def changed(self, child: Child) -> None:
        """Report a change of a child's state; called by the supervisor."""
        name, state = child.name, child.state
        if state in (ChildState.PREPARING, ChildState.STARTING):
            self._began.setdefault(name, time.monotonic())
            self._waiting[name] = state
        elif state in (ChildState.READY, ChildState.DONE):
            began = self._began.pop(name, None)
            seconds = 0.0 if began is None else time.monotonic() - began
            self._waiting.pop(name, None)
            where = f"127.0.0.1:{child.spec.port}" if child.spec.port else ""
            again = f"  (start {child.num_restarts + 1})" if child.num_restarts else ""
            self._mark("green", name, f"{state.value:<8} {seconds:5.1f} s  {where}{again}")
        elif state is ChildState.RESTARTING and not self._is_stopping:
            self._began[name] = time.monotonic()
            if is_reported(child.num_restarts):
                self._mark("yellow", name, f"ended ({child.last_exit}), starting again")
        elif state is ChildState.NOT_READY:
            self._mark("yellow", name, f"does not answer; its log: {child.spec.log_path}")
        elif state is ChildState.STOPPED and child.started_at is not None:
            self._mark("dim", name, "stopped")
        self._describe()

    def gave_up(self, error: ChildGaveUp) -> None:
        self._print(f"[bold red]{escape(str(error))}[/bold red]")
        self.line(f"The end of {error.log_path}:")
        self.line(readable(error.log_end) or "  (it wrote nothing)")

    def warn(self, text: str) -> None:
        self._print(f"[bold yellow]{escape(text)}[/bold yellow]")

    def failed(self, text: str) -> None:
        self._print(f"[bold red]{escape(text)}[/bold red]")

    def _mark(self, colour: str, name: str, text: str) -> None:
        self._print(f"  [{colour}]{name:<{NAME_WIDTH}}[/{colour}] {escape(text)}")

    def _describe(self) -> None:
        if self._status is not None and not self._is_stopping:
            names = ", ".join(self._waiting) or "all parts"
            self._status.update(f"starting {escape(names)}")

    @contextmanager
    def _spinner(self, text: str) -> Iterator[None]:
        if not self._console.is_terminal:
            yield
            return
        with self._console.status(escape(text)) as status:
            self._status = status
            try:
                yield
            finally:
                self._status = None

    def _plain_downloads(self, title: str, total: int) -> Callable[[Jar], None]:
        done = 0
        next_line = 25
        self.line(f"  {title}: {total / 1e6:.0f} MB")

        def advance(jar: Jar) -> None:
            nonlocal done, next_line
            done += jar.size_bytes
            percent = 100 * done // max(total, 1)
            if percent >= next_line:
                self.line(f"  {title}: {percent} %")
                next_line = percent - percent % 25 + 25

        return advance
