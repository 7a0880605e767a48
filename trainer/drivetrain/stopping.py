"""The request to stop: SIGTERM, in a local run also SIGINT, kept until the ranks act on it."""

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from drivetrain import signals
from drivetrain_schemas.pods import StopNotice

_STOP_SAVE_SECONDS = 20.0


class StopRequest:
    """Installed while the `with` block runs. `on_request` is called in the signal handler."""

    def __init__(self, directory: Path, is_local: bool, on_request: Callable[[], None]) -> None:
        self.reason: str | None = None
        self._directory = directory
        self._signals = [signal.SIGTERM] + [signal.SIGINT] * is_local
        self._on_request = on_request

    def install(self) -> None:
        if threading.current_thread() is threading.main_thread():
            signals.handle(self._signals, self._handle)

    def restore(self) -> None:
        signals.restore()

    @property
    def saves_nothing(self) -> bool:
        """A stop is requested that wants no last checkpoint."""
        notice = None if self.reason is None else self._notice()
        return notice is not None and not notice.checkpoint

    def seconds_to_save(self) -> float:
        """How long the last checkpoint may take: most of the time until the notice's deadline."""
        notice = self._notice()
        return _STOP_SAVE_SECONDS if notice is None else 0.8 * notice.deadline_seconds

    def _notice(self) -> StopNotice | None:
        """As the shim has taken it; None where the signal came without one."""
        for name in ("notice.json", "stop.json"):
            try:
                return StopNotice.model_validate_json((self._directory / name).read_bytes())
            except (OSError, ValueError):
                continue
        return None

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.reason is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.reason = signal.Signals(number).name
        self._on_request()
