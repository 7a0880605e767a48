"""Which step a logged value belongs to, in a loop of the script's own that calls `advance()`.

Such a loop may log before `advance()`, after it, or both. Values logged before the first call
belong to the step that it ends, so they wait for it. Their names show the script's habit: where
one of them is logged, the next step has been taken, and `advance()` is still to come.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from drivetrain.reporting import capture

_MOST_WAITING = 1000
REPEATS_WITHOUT_A_STEP = 10


class Attribution:
    """`emit` takes the values with their step; `warn` is called once if no step is ever taken."""

    def __init__(
        self, emit: Callable[[int, Mapping[str, Any]], None], warn: Callable[[], None]
    ) -> None:
        self._emit = emit
        self._warn = warn
        self._waiting: list[Mapping[str, Any]] | None = []
        self._times: Counter[str] = Counter()  # logged before the first advance()
        self._is_ahead = False
        self._has_logged_after = False

    @property
    def logs_after(self) -> bool:
        """Whether values of the step that has just ended may still come."""
        return self._has_logged_after or not self._times

    def log(self, step: int, named: Mapping[str, Any]) -> None:
        if self._waiting is None:
            self._is_ahead = self._is_ahead or not self._times.keys().isdisjoint(named)
            self._has_logged_after = self._has_logged_after or not self._is_ahead
            self._emit(step + self._is_ahead, named)
            return
        self._waiting.append({name: capture(value) for name, value in named.items()})
        self._times.update(named.keys())
        if step == 0 and max(self._times.values(), default=0) == REPEATS_WITHOUT_A_STEP:
            self._warn()
        if len(self._waiting) > _MOST_WAITING:
            self.release(step)

    def advanced(self, step: int) -> None:
        """`advance()` has ended this step."""
        self.release(step)
        self._is_ahead = False

    def release(self, step: int) -> None:
        """What waits belongs to this step."""
        waiting, self._waiting = self._waiting, None
        for named in waiting or ():
            self._emit(step, named)

    def end(self, step: int) -> None:
        """The run ends here, without a further step."""
        self.release(step)
        if step == 0 and 1 < max(self._times.values(), default=0) < REPEATS_WITHOUT_A_STEP:
            self._warn()
