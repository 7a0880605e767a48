"""A real MLflow server on loopback, and programs run with the Python of its environment."""

import contextlib
import json
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from tests.waiting import wait_until

START_SECONDS = 600.0  # it imports half a minute of code, on a busy machine much longer
# No proxy, no telemetry; the client of MLflow retries refused connections for minutes otherwise.
QUIET = {
    "NO_PROXY": "*",
    "no_proxy": "*",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
}


class MlflowServer:
    """A process group, its database and artifacts in a directory; it can be started again."""

    def __init__(self, tools: Path, home: Path, backend_store: str = "") -> None:
        self.tools = tools
        self._home = home
        self._store = backend_store or f"sqlite:///{home / 'mlflow.db'}"
        self._port = _free_port()
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    @property
    def log(self) -> Path:
        return self._home / "mlflow.log"

    def start(self) -> None:
        """Start it and wait until it answers."""
        command = [
            str(self.tools / "bin" / "mlflow"), "server", "--host", "127.0.0.1",
            "--port", str(self._port), "--workers", "1", "--backend-store-uri", self._store,
            "--artifacts-destination", str(self._home / "artifacts"),
        ]  # fmt: skip
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                stdout=log,
                stderr=log,
                cwd=self._home,
                env={**os.environ, **QUIET, "PATH": f"{self.tools / 'bin'}:{os.environ['PATH']}"},
                start_new_session=True,
            )
        wait_until(self._answers, "MLflow answers", seconds=START_SECONDS, every=0.2)

    def stop(self) -> None:
        """kill -9 of the server and its workers."""
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait(timeout=30)

    def _answers(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.log.read_text()[-4000:]
        try:
            return httpx.get(f"{self.url}/health", trust_env=False, timeout=5).status_code == 200
        except httpx.TransportError:
            return False


@contextlib.contextmanager
def running_mlflow(tools: Path, home: Path, backend_store: str = "") -> Iterator[MlflowServer]:
    home.mkdir(parents=True, exist_ok=True)
    server = MlflowServer(tools, home, backend_store)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def run_with_tools(tools: Path, script: str, *arguments: str) -> Any:
    """What a script for the tools' Python prints as JSON."""
    result = subprocess.run(
        [str(tools / "bin" / "python"), "-c", script, *arguments],
        env={**os.environ, **QUIET},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return json.loads(result.stdout)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
