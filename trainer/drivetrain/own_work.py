"""How long a rank works before it waits for the others, by each exchange of gradients.

Ranks that train synchronously all take the same time for a step, however slow one of them is: the
others wait for it inside of the exchange. So the time is taken from the end of one exchange to this
rank's last own gradient before the next one: loading, forward and backward, and what the script
does besides. On the CPU this is the time of the program, on CUDA that of the device, read once it
has passed. A hook on one parameter and two callbacks at the end of the backward pass: microseconds
a step. Never raises; after an error nothing is measured any more.
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MAX_WAITING = 64  # exchanges that the device has not reached yet; more are not measured
_logger = logging.getLogger("drivetrain")


class OwnWork:
    """The seconds of own work of one rank."""

    def __init__(self) -> None:
        self._end: Any = None  # of the exchange before, as a mark
        self._ready: Any = None
        self._waiting: deque[tuple[Any, Any]] = deque(maxlen=MAX_WAITING)
        self._seconds: tuple[float, int] = (0.0, 0)
        self._is_over = False

    def watch(self, replica: "torch.nn.parallel.DistributedDataParallel") -> None:
        """Measure the exchanges of this module's gradients."""
        # Backward goes from the last parameter to the first one.
        first = next(one for one in replica.parameters() if one.requires_grad)
        mark = _mark_device if first.device.type == "cuda" else time.perf_counter

        def ready(_: "torch.Tensor") -> None:
            if replica.require_backward_grad_sync and not self._is_over:
                self._try(lambda: self._is_ready(mark))

        first.register_post_accumulate_grad_hook(ready)  # type: ignore[no-untyped-call]

    def take(self) -> float | None:
        """The mean of the exchanges since the last call; None without one."""
        (seconds, number), self._seconds = self._seconds, (0.0, 0)
        return seconds / number if number else None

    def _is_ready(self, mark: Callable[[], Any]) -> None:
        self._ready = mark()
        # The wrapper waits for the exchange in a callback of its own, which it adds after this
        # one: so ours is added again from there, and runs when the exchange has ended.
        _at_end(lambda: self._try(lambda: _at_end(lambda: self._try(lambda: self._ended(mark)))))

    def _ended(self, mark: Callable[[], Any]) -> None:
        if self._end is not None:
            self._waiting.append((self._end, self._ready))
        self._end = mark()
        while self._waiting and _has_passed(self._waiting[0][1]):
            seconds, number = self._seconds
            self._seconds = seconds + _between(*self._waiting.popleft()), number + 1

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except Exception:
            self._is_over = True
            _logger.warning("own work of the ranks is not measured from here", exc_info=True)


def _at_end(act: Callable[[], None]) -> None:
    """At the end of this backward pass."""
    import torch

    torch.autograd.Variable._execution_engine.queue_callback(act)


def _mark_device() -> "torch.cuda.Event":
    import torch

    event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    event.record()
    return event


def _has_passed(mark: Any) -> bool:
    return isinstance(mark, float) or bool(mark.query())


def _between(start: Any, end: Any) -> float:
    return float(end - start if isinstance(end, float) else start.elapsed_time(end) / 1000)
