"""One container by its directory: started, observed over restarts of the kubelet, signalled.

Whether it still runs is known by a lock that its `container_process.py` holds, so no process id is
ever trusted that may be another's by now.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tests.kubernetes.kubelet import container_process

MAX_MESSAGE_BYTES = 4096
MAX_LOG_MESSAGE_BYTES = 2048
LOST = "The container could not be located when the pod was terminated"


@dataclass(frozen=True, slots=True)
class State:
    """`reason` is the word of Kubernetes, such as Error, OOMKilled, ContainerStatusUnknown."""

    kind: Literal["absent", "starting", "running", "terminated"]
    started_at: str | None = None
    finished_at: str | None = None
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class Container:
    def __init__(self, directory: Path, log: Path) -> None:
        self.directory = directory
        self.log = log
        self.termination_log = directory / "termination-log"

    def start(self, config: dict[str, Any], session_fd: int) -> None:
        """Once; `container_process` needs nothing but the config."""
        for name in ("root", "tmp"):
            (self.directory / name).mkdir(parents=True)
        self.termination_log.touch()
        content = {
            **config,
            "root": str(self.directory / "root"),
            "tmp": str(self.directory / "tmp"),
            "log": str(self.log),
            "session_fd": session_fd,
        }
        lock = os.open(self.directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        file = self.directory / "config.json"
        file.write_text(json.dumps(content))
        with (self.directory / "launch.log").open("wb") as output:
            # Not awaited: its end shows in files, also to a kubelet that did not start it.
            subprocess.Popen(
                [sys.executable, "-I", "-S", container_process.__file__, str(file)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                pass_fds=(session_fd, lock),
                start_new_session=True,
            )
        os.close(lock)

    def state(self, falls_back_to_log: bool = False) -> State:
        if not (self.directory / "config.json").exists():
            return State("absent")
        is_alive = self._is_locked()
        # Asked for the lock first: what has ended since then has left its file.
        started = self._read("started.json")
        end = self._read("exit.json")
        if end is not None:
            return self._ended(started or {}, end, falls_back_to_log)
        if is_alive:
            return State("running", started["at"]) if started else State("starting")
        why = (self.directory / "launch.log").read_text()[-1000:]
        if started is None and why:
            return State("terminated", exit_code=128, reason="StartError", message=why)
        return State("terminated", None, None, 137, "ContainerStatusUnknown", LOST)

    def _ended(self, started: dict[str, Any], end: dict[str, Any], falls_back: bool) -> State:
        if end["error"]:
            message = f"failed to create containerd task: {end['error']}"
            return State("terminated", None, end["at"], 128, "StartError", message)
        reason = "Completed" if end["code"] == 0 else "Error"
        if end["code"] == 137 and (self.directory / "oom").exists():
            reason = "OOMKilled"
        message = self._message(falls_back and end["code"] != 0)
        return State("terminated", started.get("at"), end["at"], end["code"], reason, message)

    def _message(self, falls_back_to_log: bool) -> str:
        content = self.termination_log.read_bytes()[:MAX_MESSAGE_BYTES]
        if not content and falls_back_to_log and self.log.exists():
            content = self.log.read_bytes()[-MAX_LOG_MESSAGE_BYTES:]
        return content.decode(errors="replace")

    def run_out_of_memory(self) -> None:
        (self.directory / "oom").touch()
        self.signal(signal.SIGKILL)

    def signal(self, number: int) -> None:
        """To the first process only, as a container runtime does; nothing if it has ended."""
        started = self._read("started.json")
        if started is not None and self._is_locked():
            with suppress(ProcessLookupError):
                os.kill(started["pid"], number)

    def is_lost(self) -> bool:
        """Kill it as a loss of power does, with no end recorded; True when nothing of it runs."""
        if not self._is_locked():
            return True
        started = self._read("started.json")
        if started is not None:
            with suppress(ProcessLookupError):
                os.kill(started["supervisor"], signal.SIGKILL)
        return False

    def _is_locked(self) -> bool:
        try:
            descriptor = os.open(self.directory / "lock", os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            content: dict[str, Any] = json.loads((self.directory / name).read_text())
        except FileNotFoundError:
            return None
        return content
