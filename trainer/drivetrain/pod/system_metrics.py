"""Samples what the pod uses, every 10 seconds, in a thread of the shim's own.

A thread, because a driver may take long to answer: then only these figures are late. What a sample
costs in CPU time decides when the next one is due, so that they never use more than a thousandth of
a core, however many processes the machine has.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence

from drivetrain.pod import usage
from drivetrain.pod.devices import Devices

FIRST_SECONDS = 2.0  # so that a short run has some
SECONDS = 10.0
MAX_SHARE_OF_A_CORE = 0.001
_logger = logging.getLogger("drivetrain.pod")

# When it was taken, in whole seconds of the epoch, and the values by series.
Give = Callable[[int, dict[str, float]], None]


class SystemMetrics:
    """`devices`: those of the pod, by index or UUID; None: all that are visible. `give` is called
    from the thread.
    """

    def __init__(self, devices: Sequence[str] | None, is_container: bool, give: Give) -> None:
        self._devices, self._is_container, self._give = devices, is_container, give
        self._is_over = threading.Event()

    def start(self) -> None:
        # A daemon: a driver that hangs must not keep the shim.
        threading.Thread(target=self._run, daemon=True, name="system-metrics").start()

    def stop(self) -> None:
        self._is_over.set()

    def _run(self) -> None:
        try:
            self._sample()
        except Exception:  # no error may end the pod
            _logger.exception("system metrics end here")

    def _sample(self) -> None:
        own = self._is_container
        before = usage.read(own)
        devices = Devices(self._devices)
        pause = FIRST_SECONDS
        while not self._is_over.wait(pause):
            started = time.thread_time()
            now = usage.read(own)
            self._give(int(time.time()), usage.figures(before, now, own) | devices.figures())
            before = now
            pause = pause_after(time.thread_time() - started)


def pause_after(cost_seconds: float) -> float:
    """How long to wait after a sample that took so much CPU time."""
    return max(SECONDS, cost_seconds / MAX_SHARE_OF_A_CORE)
