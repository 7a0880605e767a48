"""One training job on a platform, as a failure scenario sees and strikes it."""

import gzip
import io
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import httpx

from tests.standalone_platform import StandalonePlatform, processes_with_marker
from tests.waiting import wait_until

MAX_STEPS = 400
SCRIPT = Path(__file__).parent / "jobs" / "train.py"
STRIKE_BEFORE = 0.6 * MAX_STEPS


def packed_code(script: str) -> bytes:
    """The job's code as the gateway takes it."""
    buffer = io.BytesIO()
    content = script.encode()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=0) as zipped,  # the same bytes each time
        tarfile.open(fileobj=zipped, mode="w") as archive,
    ):
        member = tarfile.TarInfo("train.py")
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class TrainingJob:
    """A job submitted through the gateway."""

    def __init__(self, platform: StandalonePlatform, job_id: str) -> None:
        self.platform = platform
        self.job_id = job_id
        self.body = job_id.removeprefix("job_")

    @classmethod
    def submit(
        cls,
        platform: StandalonePlatform,
        request_id: str,
        script: str | None = None,
        **changes: Any,
    ) -> "TrainingJob":
        """`changes` go over the common spec; `script` takes the place of `jobs/train.py`."""
        spec = cls.spec(platform, request_id, script, **changes)
        with platform.client() as client:
            answer = client.post("/v1/jobs", json={"request_id": request_id, "spec": spec})
        if answer.is_server_error:
            answer.raise_for_status()
        assert answer.status_code in (200, 201, 202), answer.text
        return cls(platform, answer.json()["job_id"])

    @classmethod
    def submit_until_taken(cls, platform: StandalonePlatform, request_id: str) -> "TrainingJob":
        """What clients do while a part is away: the same request again until it is answered."""

        def try_it() -> "TrainingJob | None":
            try:
                return cls.submit(platform, request_id)
            except httpx.TransportError as error:
                print(f"no answer yet: {error!r}")
            except httpx.HTTPStatusError as error:
                if not error.response.is_server_error:
                    raise
                print(f"not yet: {error!r}")
            return None

        return wait_until(try_it, f"{request_id} is taken", seconds=180, every=0.2)

    @staticmethod
    def spec(
        platform: StandalonePlatform, name: str, script: str | None = None, **changes: Any
    ) -> dict[str, Any]:
        """The common spec, its code uploaded, with the changes."""
        with platform.client() as client:
            code = client.post(
                "/v1/code",
                content=packed_code(script or SCRIPT.read_text()),
                headers={"content-type": "application/gzip"},
            )
        code.raise_for_status()
        return {
            "name": name,
            "command": "python train.py",
            "code": {key: code.json()[key] for key in ("uri", "sha256")},
            "max_steps": MAX_STEPS,
            "resources": {"devices": 2},
            "checkpoint": {"every_steps": 40, "keep_last": 3},
            "retries": {"limit": 5, "backoff_seconds": 0.5},
            **changes,
        }

    def state(self) -> dict[str, Any]:
        content: dict[str, Any] = self.platform.get(f"/v1/jobs/{self.job_id}")
        return content

    def timeline(self) -> list[dict[str, Any]]:
        content = self.platform.get(f"/v1/jobs/{self.job_id}/timeline", limit=500)
        return list(content["items"])

    def events(self, event_type: str) -> list[dict[str, Any]]:
        return [item["data"] for item in self.timeline() if item["type"] == event_type]

    def step(self) -> int:
        """The furthest step in the pods' own logs: known whatever else is down."""
        steps = [0]
        for log in (self.platform.home / "pods" / self.job_id).glob("*/*/log"):
            steps += [
                int(found) for found in re.findall(rb"step (\d+)\n", log.read_bytes()[-4096:])
            ]
        return max(steps)

    def pods(self, attempt: int = 1) -> list[Path]:
        folder = self.platform.home / "pods" / self.job_id / str(attempt)
        return sorted(path for path in folder.glob("pod_*") if path.is_dir())

    def shims(self, attempt: int = 1) -> list[int]:
        identities = [path / "identity.json" for path in self.pods(attempt)]
        return [json.loads(path.read_text())["pid"] for path in identities if path.exists()]

    def ranks(self, attempt: int = 1) -> list[int]:
        """The processes of this attempt that are no shims."""
        marked = processes_with_marker(f"{self.body}_{attempt}_")
        return [pid for pid in marked if pid not in self.shims(attempt)]

    def processes(self, attempt: int = 1) -> list[int]:
        return [*self.ranks(attempt), *self.shims(attempt)]

    def attempts(self) -> list[int]:
        folder = self.platform.home / "pods" / self.job_id
        return sorted(int(path.name) for path in folder.iterdir() if path.name.isdigit())

    def wait_for_strike(self, *, seconds: float = 120.0) -> int:
        """Wait for the first committed checkpoint; returns the step, which is below 60 %."""
        wait_until(
            lambda: self.events("checkpoint.committed"), "a checkpoint", seconds=seconds, every=0.3
        )
        first = self.events("checkpoint.committed")[0]["step"]
        step = self.step()
        assert first <= step < STRIKE_BEFORE, f"struck too late: step {step}"
        return step

    def wait_step(self, step: int, *, seconds: float = 90.0) -> None:
        wait_until(lambda: self.step() >= step, f"step {step}", seconds=seconds)

    def wait_final(self, *, seconds: float = 240.0) -> dict[str, Any]:
        def final() -> dict[str, Any] | None:
            state = self.state()
            return state if state["state"] in ("succeeded", "failed", "cancelled") else None

        return wait_until(final, f"{self.job_id} ends", seconds=seconds, every=0.5)
