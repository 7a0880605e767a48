"""Pods started without a scheduler: a directory with a spec, a shim, cold or from a template."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from drivetrain.files.places import work_directory
from drivetrain.storage import create_storage
from drivetrain_schemas.ids import job_id_for, pod_id_for, run_id_for
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.pods import (
    MARKER,
    KafkaAccess,
    PodExit,
    PodIdentity,
    PodSpec,
    StopNotice,
    marker_of,
)

NO_KAFKA = KafkaAccess(bootstrap_servers="127.0.0.1:1")


def wait_for(condition: Callable[[], Any], what: str, seconds: float = 60.0) -> Any:
    """The first true value of the condition."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.02)
    return value


def processes_carrying(marker: str) -> list[int]:
    """Ids of the living processes with this marker."""
    entry = f"\0{MARKER}={marker}\0".encode()
    found = []
    for directory in Path("/proc").iterdir():
        if not directory.name.isdigit():
            continue
        try:
            environment = b"\0" + (directory / "environ").read_bytes() + b"\0"
        except OSError:  # gone, or another user's
            continue
        if entry in environment:
            found.append(int(directory.name))
    return sorted(found)


class Pod:
    """One pod directory below `root`, or below `pods`, as the launcher makes it.

    `machine`: pods with another one have another directory; `num_ranks` is that of each pod.
    """

    def __init__(self, root: Path, num_ranks: int = 1, attempt: int = 1, **options: Any) -> None:
        index, num_pods = options.pop("pod_index", 0), options.pop("num_pods", 1)
        machine, port = options.pop("machine", ""), options.pop("master_port", 0)
        pods = options.pop("pods", root / "pods")
        # Of this test only: markers are looked for on the whole machine.
        request_id = f"{os.getpid()} {options.pop('request', '')} {root}"
        job_id = job_id_for("default", request_id[-120:])
        kafka = options.pop("kafka", NO_KAFKA)
        run_token, trace = options.pop("run_token", None), options.pop("trace", None)
        environment = {name: str(v) for name, v in options.pop("environment", {}).items()}
        job = JobSpec.model_validate(
            {
                "name": "test",
                "environment": environment,
                "resources": {"devices": num_ranks * num_pods},
            }
            | options
        )
        self.pod_id = pod_id_for(job_id, attempt, index)
        self.directory = Path(f"{pods}{machine}") / job_id / str(attempt) / self.pod_id
        self.directory.mkdir(parents=True, mode=0o700)
        objects = root / "objects"
        create_storage(objects)
        self.work = work_directory(self.directory)
        self.checkpoints = objects / "checkpoints" / "default" / job_id
        self.files = objects / "files" / "default" / job_id
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = port or free.getsockname()[1]
        self.spec = PodSpec(
            pod_id=self.pod_id,
            tenant_id="default",
            job_id=job_id,
            run_id=run_id_for(job_id, attempt),
            run_token=run_token,
            trace=trace,
            attempt=attempt,
            fence=100 + attempt,
            node_id="node-0",
            pod_index=index,
            num_pods=num_pods,
            first_rank=index * num_ranks,
            num_ranks=num_ranks,
            world_size=num_ranks * num_pods,
            device_type="cpu",
            job=job,
            kafka=kafka,
            object_store_url=objects.as_uri(),
            rendezvous_file=str(root / f"rendezvous-{attempt}"),
            master_port=port,
        )
        (self.directory / "spec.json").write_text(self.spec.model_dump_json(exclude_none=True))

    def start_cold(self, *program: str) -> None:
        """`program` replaces the shim's own."""
        with (self.directory / "launch.log").open("ab") as output:
            self.process = subprocess.Popen(
                [
                    sys.executable,
                    *(program or ("-m", "drivetrain.pod")),
                    "--directory",
                    str(self.directory),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, MARKER: marker_of(self.directory)},
                start_new_session=True,
            )

    def start_warm(self, template_socket: Path) -> int:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(template_socket))
            connection.sendall(json.dumps({"directory": str(self.directory)}).encode() + b"\n")
            answer = json.loads(connection.makefile().readline())
        return int(answer["pid"])

    @property
    def identity(self) -> PodIdentity | None:
        path = self.directory / "identity.json"
        return PodIdentity.model_validate_json(path.read_text()) if path.exists() else None

    @property
    def log(self) -> str:
        path = self.directory / "log"
        return path.read_text() if path.exists() else ""

    @property
    def launch_log(self) -> str:
        path = self.directory / "launch.log"
        return path.read_text() if path.exists() else ""

    def wait_for_log(self, text: str) -> None:
        wait_for(lambda: text in self.log, f"{text!r} in the log:\n{self.log}{self.launch_log}")

    def write_notice(self, notice: StopNotice) -> None:
        partial = self.directory / ".stop.json.partial"
        partial.write_text(notice.model_dump_json())
        partial.rename(self.directory / "stop.json")

    def stop(self, notice: StopNotice | None = None) -> None:
        if notice is not None:
            self.write_notice(notice)
        assert self.identity is not None
        os.kill(self.identity.pid, signal.SIGTERM)

    def end_shim(self) -> None:
        """After `exit.json` a shim stays while Kafka owes it acknowledgements; a notice ends it."""
        identity = self.identity
        assert identity is not None
        if self.spec.kafka.bootstrap_servers == NO_KAFKA.bootstrap_servers:
            with suppress(ProcessLookupError):
                os.kill(identity.pid, signal.SIGTERM)
        wait_for(lambda: not self.processes(), "the shim to end")
        if hasattr(self, "process"):
            assert self.process.wait() == 0, (self.process.returncode, self.launch_log)

    def wait_for_exit(self, seconds: float = 60.0) -> PodExit:
        path = self.directory / "exit.json"
        wait_for(path.exists, f"exit.json\n{self.log}{self.launch_log}", seconds)
        return PodExit.model_validate_json(path.read_text())

    def processes(self) -> list[int]:
        return processes_carrying(marker_of(self.directory))

    def kill_all(self) -> None:
        """What a launcher does with a pod whose shim is dead."""

        def kill() -> bool:
            pids = self.processes()
            for pid in pids:
                if not Path(f"/proc/{pid}/stat").read_text().split(") ")[1].startswith("Z"):
                    os.kill(pid, signal.SIGKILL)
            return not pids

        wait_for(kill, "all marked processes to be gone")
