"""A template as the platform starts it, with this process in the place of its parent."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from drivetrain.pod.processes import stat_fields
from tests.trainer.pods import wait_for


def name_caller(template: socket.socket, pid: int, later_by: int = 0) -> None:
    """Say who may ask: this process, started so many ticks later than it was."""
    start_ticks = int(stat_fields(str(pid))[19]) + later_by
    template.send(json.dumps({"pid": pid, "start_ticks": start_ticks}).encode())


def ask(template: Path, request: bytes) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(template))
        with suppress(BrokenPipeError):  # refused before it was read
            connection.sendall(request)
        answer: dict[str, Any] = json.loads(connection.makefile().readline())
    return answer


def request(directory: Path) -> bytes:
    return json.dumps({"directory": str(directory)}).encode() + b"\n"


_ASK = """
import json, os, pathlib, sys
from tests.trainer.warm_template import ask, request
template, directory = (pathlib.Path(text) for text in sys.argv[1:])
print(json.dumps([os.getpid(), ask(template, request(directory))]))
"""


class WarmTemplate:
    def __init__(self, directory: Path, pods: Path) -> None:
        self.socket = directory / "s"
        self._log = directory / "log"
        self._line, its_input = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = ["-m", "drivetrain.template", "--socket", str(self.socket), "--pods", str(pods)]
        with self._log.open("wb") as log, its_input:
            self.process = subprocess.Popen(
                [sys.executable, *command], stdin=its_input, stdout=log, stderr=log
            )

    def admit(self, pid: int) -> None:
        """This process may ask once this returns: what waits when it is named is refused."""
        name_caller(self._line, pid)
        if pid == os.getpid():
            wait_for(self._admits_me, "the template to admit this process")

    def _admits_me(self) -> bool:
        try:
            return "only the scheduler" not in ask(self.socket, b"\n")["error"]
        except ConnectionRefusedError:
            return False  # it does not listen yet

    def ask_before_it_is_named(self, directory: Path) -> dict[str, Any]:
        """This process connects and asks; only then the template hears that it may."""
        os.kill(self.process.pid, signal.SIGSTOP)
        with socket.socket(socket.AF_UNIX) as early:
            try:
                early.connect(str(self.socket))
                early.sendall(request(directory))
                name_caller(self._line, os.getpid())
            finally:
                os.kill(self.process.pid, signal.SIGCONT)
            answer: dict[str, Any] = json.loads(early.makefile().readline())
        return answer

    def ask_as_another(self, directory: Path) -> tuple[int, dict[str, Any]]:
        """Another process of the same user, and the answer that it gets."""
        asked = subprocess.run(
            [sys.executable, "-c", _ASK, str(self.socket), str(directory)],
            stdout=subprocess.PIPE,
            check=True,
        )
        pid, answer = json.loads(asked.stdout)
        return pid, answer

    def logged(self) -> list[dict[str, Any]]:
        """The structured lines of its log."""
        lines = self._log.read_text().splitlines()
        return [json.loads(line) for line in lines if line.startswith("{")]

    def report(self) -> str:
        """What it says to its parent next."""
        self._line.settimeout(30)
        return self._line.recv(4096).decode()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self._line.close()


@contextmanager
def warm_template_in(directory: Path, pods: Path) -> Iterator[WarmTemplate]:
    started = WarmTemplate(directory, pods)
    try:
        wait_for(
            lambda: started.socket.exists() or started.process.poll() is not None,
            "the template to listen",
            120,
        )
        assert started.process.poll() is None, (directory / "log").read_text()
        yield started
    finally:
        started.close()
