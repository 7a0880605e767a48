"""A gateway with one job, for exports: its reads answer as the platform's do, bounds included."""

import hashlib
import json
from dataclasses import dataclass, field
from typing import Any

import httpx

from drivetrain.cli.connection import Connection
from drivetrain.cli.gateway import Gateway
from drivetrain_schemas.system_series import is_system_series

JOB_ID = "job_" + "a2" * 13
STUDY_ID = "study_" + "b3" * 13
BEGAN = "2026-11-22T10:00:00+00:00"
BEGAN_SECONDS = 1795341600.0
CPU = "system/cpu_percent"  # its steps are seconds of the epoch
MAX_READ = 50_000  # samples that one request reads

Columns = dict[int, float]  # values by step


def make_view(**changes: Any) -> dict[str, Any]:
    """The job as GET /v1/jobs/{id} shows it, with two runs."""
    runs = [make_run(1, "lost", "the node is gone"), make_run(2, "succeeded")]
    return {
        "job_id": JOB_ID, "tenant_id": "acme", "name": "digits", "state": "succeeded",
        "attempt": 2, "pool": "default", "devices": 1, "study_id": None, "trial_number": None,
        "tags": ["baseline"], "detail": None, "charged_micro_usd": 1_250_000,
        "submitted_at": "2026-11-22T09:59:58+00:00", "started_at": BEGAN,
        "finished_at": "2026-11-22T11:00:00+00:00", "runs": runs,
        "hyperparameters": {"learning_rate": 0.05, "optimizer": "sgd", "nesterov": True},
        "spec": {
            "name": "digits", "command": ["python", "train.py"], "max_steps": 100,
            "hyperparameters": {"learning_rate": 0.05, "optimizer": "sgd"},
            "resources": {"devices": 1}, "data": "s3://sets/digits/v3",
            "source": {"commit": "d" * 40, "branch": "main", "is_dirty": True, "diff": "+x\n"},
            "code": {"uri": "file:///code/x.tar.gz", "sha256": "c" * 64},
        },
        "result": {"step": 100, "metrics": {"loss": 0.1}, "seed": {"number": 7, "by_script": []}},
        **changes,
    }  # fmt: skip


def make_run(attempt: int, state: str, detail: str | None = None) -> dict[str, Any]:
    hour = 9 + attempt
    return {
        "run_id": f"run_{attempt}", "attempt": attempt, "state": state, "detail": detail,
        "exit_code": None, "signal": None, "rank": None,
        "starting_at": f"2026-11-22T{hour}:00:00+00:00",
        "started_at": f"2026-11-22T{hour}:00:00+00:00",
        "ended_at": f"2026-11-22T{hour}:50:00+00:00",
    }  # fmt: skip


def make_checkpoint(step: int, attempt: int = 2, **changes: Any) -> dict[str, Any]:
    return {
        "checkpoint_id": f"ckpt_{step}", "job_id": JOB_ID, "run_id": f"run_{attempt}",
        "attempt": attempt, "step": step, "state": "committed", "is_latest": True,
        "is_best": True, "size_bytes": 4096, "num_shards": 1, "metrics": {"loss": 0.1},
        "manifest_key": f"{JOB_ID}/{step}/manifest.json", "restored_by_attempt": None,
        "committed_at": "2026-11-22T11:30:00+00:00", **changes,
    }  # fmt: skip


@dataclass
class StoredJob:
    """`samples`: by attempt, rank and name. `files`: contents by path."""

    view: dict[str, Any] = field(default_factory=make_view)
    samples: dict[tuple[int, int, str], Columns] = field(default_factory=dict)
    times: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    checkpoints: list[dict[str, Any]] = field(default_factory=list)
    pictures: list[tuple[int, bytes]] = field(default_factory=list)  # by step; two in a page
    num_requests: int = 0

    def gateway(self) -> Gateway:
        return Gateway(
            Connection("http://platform.test", "token"), httpx.MockTransport(self.respond)
        )

    def expected(self) -> dict[tuple[int, str], dict[int, tuple[int, float]]]:
        """By rank and name, of each step the attempt that counts and its value."""
        found: dict[tuple[int, str], dict[int, tuple[int, float]]] = {}
        for (attempt, rank, name), columns in sorted(self.samples.items()):
            of_series = found.setdefault((rank, name), {})
            if is_system_series(name):
                columns = {step - int(BEGAN_SECONDS): value for step, value in columns.items()}
            of_series.update({step: (attempt, value) for step, value in columns.items()})
        return found

    def respond(self, request: httpx.Request) -> httpx.Response:
        self.num_requests += 1
        path = request.url.path.removeprefix(f"/v1/jobs/{self.view['job_id']}")
        query = request.url.params
        if path == "":
            return httpx.Response(200, json=self.view)
        if path == "/times":
            attempts = [
                {"attempt": one, "steps": [p[0] for p in points], "times": [p[1] for p in points]}
                for one, points in self.times.items()
            ]
            return httpx.Response(200, json={"attempts": attempts})
        if path == "/series":
            return httpx.Response(200, json=self._series(query))
        if path == "/metrics":
            return httpx.Response(200, json={"series": self._metrics(query)})
        if path == "/checkpoints":
            return httpx.Response(200, json={"checkpoints": self.checkpoints})
        if path == "/files":
            listed = {"checkpoint_id": "ckpt_1", "num_left_out": 0, "files": self._files()}
            return httpx.Response(200, json=listed)
        if path == "/media":
            steps = [step for step, _ in self.pictures]
            name = {"name": "sample s", "first_step": min(steps, default=0)}
            return httpx.Response(200, json={"names": [name] if steps else []})
        if path == "/media/items":
            last = int(query.get("to_step", 2**53))
            items = [self._picture(step) for step, _ in self.pictures if step <= last][-2:]
            return httpx.Response(200, json={"items": items})
        if path == "/media/content":
            return httpx.Response(200, content=dict(self.pictures)[int(query["step"])])
        if path == "/files/content":
            return httpx.Response(200, content=self.files[query["path"]])
        return httpx.Response(404, json={"detail": f"no {path}"})

    def _files(self) -> list[dict[str, Any]]:
        return [
            {"path": path, "mode": "644", "sha256": hashlib.sha256(content).hexdigest()}
            for path, content in self.files.items()
        ]

    def _picture(self, step: int) -> dict[str, Any]:
        sha256 = hashlib.sha256(dict(self.pictures)[step]).hexdigest()
        facts = {"media": "image", "image_form": "png", "file_name": None, "sha256": sha256}
        return {"name": "sample s", "step": step, "item": 0, **facts}

    def _series(self, query: httpx.QueryParams) -> dict[str, Any]:
        rank = int(query["rank"])
        is_system = "system" in query
        names = sorted(
            {n for _, r, n in self.samples if r == rank and is_system_series(n) == is_system}
        )
        after, limit = query.get("after", ""), int(query["limit"])
        page = [name for name in names if name > after][: limit + 1]
        rows = []
        for name in page[:limit]:
            of_name = [c for (_, r, n), c in self.samples.items() if (r, n) == (rank, name)]
            steps = [step for columns in of_name for step in columns]
            sizes = {"first_step": min(steps), "last_step": max(steps), "num_samples": len(steps)}
            rows.append({"name": name, **sizes})
        return {"series": rows, "next": rows[-1]["name"] if len(page) > limit else None}

    def _metrics(self, query: httpx.QueryParams) -> dict[str, Any]:
        first, last = int(query["from_step"]), int(query["to_step"])
        names = query.get_list("name")
        assert 0 < len(names) <= 50
        columns = {
            name: {
                step: value
                for step, value in self.samples.get(
                    (int(query["attempt"]), int(query["rank"]), name), {}
                ).items()
                if first <= step <= last
            }
            for name in names
        }
        # Of more than it may read, the service reads the last ones.
        steps = sorted((step for one in columns.values() for step in one), reverse=True)
        read_from = first if len(steps) <= MAX_READ else steps[MAX_READ - 1] + 1
        answer = {}
        for name, one in columns.items():
            shown = sorted(step for step in one if step >= read_from)
            is_downsampled = len(shown) > int(query["max_points"])
            shown = shown[:: 2 if is_downsampled else 1]
            values = [_spelt(one[step]) for step in shown]
            facts = {"is_downsampled": is_downsampled, "read_from_step": read_from}
            answer[name] = {"steps": shown, "values": values, **facts}
        return json.loads(json.dumps(answer, allow_nan=False))


def _spelt(value: float) -> float | str:
    return value if value - value == 0 else str(value)


def make_job(**changes: Any) -> StoredJob:
    """Two attempts that overlap, values that are not finite, hard names, two ranks, two files."""
    loss = {step: 1 / (step + 1) for step in range(0, 2500)}
    again = {step: 2 / (step + 1) for step in range(2000, 3000)}
    samples = {
        (1, 0, "loss"): loss,
        (2, 0, "loss"): again | {2500: float("nan"), 2501: float("inf"), 2502: float("-inf")},
        (1, 0, "mAP@0.5, val"): {10: 0.1, 20: 0.2},
        (2, 0, "mAP@0.5; val"): {30: 0.3},
        (2, 0, "Größe/../é"): {1: 1e300},
        (2, 1, "loss"): {0: 5.0, 7: 4.0},
        (1, 0, CPU): {int(BEGAN_SECONDS) + second: 99.5 for second in (2, 12, 22)},
    }
    times = {
        1: [(0, BEGAN_SECONDS), (2499, BEGAN_SECONDS + 249.9)],
        2: [(2000, BEGAN_SECONDS + 3600), (2999, BEGAN_SECONDS + 3699.9)],
    }
    view = make_view()
    view["spec"]["resources"]["devices"] = 2
    return StoredJob(
        view=view,
        samples=samples,
        times=times,
        files={"out/model.txt": b"weights\n", "weird #name?.txt": b"x"},
        pictures=[(step, b"picture %d" % step) for step in (10, 20, 30)],
        checkpoints=[make_checkpoint(2999), make_checkpoint(1999, 1, restored_by_attempt=2)],
        **changes,
    )
