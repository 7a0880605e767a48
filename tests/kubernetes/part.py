"""One server process of the test's Kubernetes: started, ended, killed and frozen by the test.

It ends with the test process, whatever happens to that.
"""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from services.standalone import leash
from tests.waiting import wait_until

STOP_SECONDS = 20.0


class Part:
    """`is_ready` is asked until it is true after each start. Output goes to `log`.

    `keeps`: open descriptors that it inherits.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        is_ready: Callable[[], bool],
        environment: Mapping[str, str] | None = None,
        keeps: Sequence[int] = (),
    ) -> None:
        self.name = name
        self.log = log
        self._command = list(command)
        self.is_ready = is_ready
        self._environment = {**os.environ, **(environment or {})}
        self._keeps = tuple(keeps)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.name} was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start it and do not wait. Call it from a thread that lives as long as the part."""
        assert not self.is_running, f"{self.name} runs already"
        ends_with_us = [
            sys.executable, "-I", "-S", leash.__file__,
            str(os.getpid()), str(int(signal.SIGKILL)), "-",
        ]  # fmt: skip
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(
                [*ends_with_us, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self._environment,
                pass_fds=self._keeps,
                start_new_session=True,
            )

    def wait_ready(self, *, seconds: float = 60.0) -> None:
        def ready() -> bool:
            assert self.is_running, f"{self.name} ended:\n{self.log.read_text()[-4000:]}"
            return self.is_ready()

        wait_until(ready, f"{self.name} is ready, see {self.log}", seconds=seconds, every=0.05)

    def start(self) -> None:
        self.launch()
        self.wait_ready()

    def stop(self) -> None:
        """SIGTERM, and SIGKILL after a while."""
        if not self.is_running:
            return
        assert self._process is not None
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_SECONDS)
        self.kill()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(10)

    def freeze(self) -> None:
        """It stays connected and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)
