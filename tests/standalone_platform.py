"""The whole platform as its own process tree, for tests that kill parts of it."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from services.standalone.home import Home, holder_of
from services.standalone.status import read_status
from tests.waiting import wait_until

START_SECONDS = 120.0


class StandalonePlatform:
    """`python -m services.standalone` on a data directory of its own.

    `outside`: variables that name the parts it is to use instead of its own.
    """

    def __init__(
        self,
        home: Path,
        *,
        nodes: int = 2,
        slots: int = 2,
        brokers: int = 1,
        outside: Mapping[str, str] | None = None,
        interpreter: Sequence[str] = (sys.executable,),
    ) -> None:
        self.home = home
        self.output = home.with_name(f"{home.name}.output")
        self._outside = dict(outside or {})
        self._command = [
            *interpreter, "-m", "services.standalone", "up",
            "--home", str(home), "--nodes", str(nodes), "--slots", str(slots),
            *(("--brokers", str(brokers)) if brokers > 1 else ()),
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it and wait until every part is ready."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("DRIVETRAIN_")
        } | self._outside
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._command, stdout=output, stderr=output, env=environment, start_new_session=True
            )
        wait_until(self._is_up, "the platform is up", seconds=START_SECONDS, every=0.3)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=90)

    @property
    def supervisor_pid(self) -> int:
        holder = holder_of(Home(self.home))
        assert holder is not None
        return holder.identity.pid

    def pid(self, part: str) -> int:
        """The process of a part, once it runs."""
        return int(wait_until(lambda: self.parts().get(part, {}).get("pid"), f"{part} runs"))

    def parts(self) -> dict[str, dict[str, Any]]:
        status = read_status(Home(self.home), datetime.now(UTC))
        return {part["name"]: part for part in status["parts"]}

    def kill(self, part: str) -> None:
        """kill -9 one part, and wait until another process stands in its place and is ready."""
        old = self.pid(part)
        os.kill(old, signal.SIGKILL)
        self.wait_ready(part, other_than=old)

    def wait_ready(self, part: str, *, other_than: int = 0) -> None:
        def is_ready() -> bool:
            state = self.parts().get(part, {})
            return state.get("state") == "ready" and state.get("pid") not in (None, other_than)

        wait_until(is_ready, f"{part} is ready again", seconds=90)

    def kill_everything(self, *pids: int) -> None:
        """kill -9 of the supervisor, every part, and these processes, at once."""
        assert self._process is not None
        parts = [part["pid"] for part in self.parts().values() if part.get("pid")]
        for pid in [self._process.pid, *parts, *pids]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait(timeout=30)

    @property
    def connection(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.home / "connection.json").read_text())
        return content

    @property
    def admin(self) -> dict[str, Any]:
        """Like `connection`, as the administrator of Kafka and Postgres, whom nothing is denied."""
        secrets = json.loads((self.home / "credentials.json").read_text())
        if "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS" in self._outside:
            secrets |= {f"kafka_{name}": text for name, text in self.connection["kafka"].items()}
        kafka = {
            **self.connection["kafka"],
            "username": secrets["kafka_username"],
            "password": secrets["kafka_password"],
        }
        address = self.connection["postgres_dsn"].rpartition("@")[2]
        dsn = f"postgresql://drivetrain:{secrets['postgres_password']}@{address}"
        return {"kafka": kafka, "postgres_dsn": dsn}

    @contextlib.contextmanager
    def client(self) -> Iterator[httpx.Client]:
        with httpx.Client(
            base_url=self.connection["gateway_url"],
            headers={"Authorization": f"Bearer {self.connection['token']}"},
            timeout=15.0,
            trust_env=False,
        ) as client:
            yield client

    def get(self, path: str, **parameters: Any) -> Any:
        """A read through the gateway, which may be starting again just now."""
        return wait_until(lambda: self._try_get(path, parameters), f"GET {path}", seconds=90)

    def _try_get(self, path: str, parameters: dict[str, Any]) -> Any:
        try:
            with self.client() as client:
                answer = client.get(path, params=parameters)
        except httpx.TransportError:
            return None
        return answer.json() if answer.status_code == 200 else None

    def _is_up(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, self.output.read_text()[-4000:]
        parts = self.parts()
        return {"gateway", "scheduler"} <= parts.keys() and all(
            part["state"] in ("ready", "done", "outside") for part in parts.values()
        )


def processes_with_marker(text: str) -> list[int]:
    """Processes whose environment says that they belong to a pod whose id holds `text`."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            variables = (entry / "environ").read_bytes().split(b"\0")
            is_zombie = (entry / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except (OSError, IndexError):
            continue
        wanted = f"DRIVETRAIN_POD_MARKER=pod_{text}".encode()
        if not is_zombie and any(item.startswith(wanted) for item in variables):
            found.append(int(entry.name))
    return sorted(found)
