"""A job as a run of MLflow: parameters, tags, every point of its metrics, files, status, times.

What is in MLflow already is read back and not sent again, so an export that was interrupted goes
on, and one that is repeated adds nothing. Nothing is remembered on this machine.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, groupby, islice
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivetrain.cli import downloads
from drivetrain.cli.errors import InvalidInput, NoAnswer
from drivetrain.cli.exchange import facts
from drivetrain.cli.exchange.history import History, Sample
from drivetrain.cli.exchange.mlflow_names import (
    MAX_PARAM_CHARACTERS,
    MAX_TAG_CHARACTERS,
    Point,
    file_path,
    json_value,
    key,
    point,
)
from drivetrain.cli.exchange.mlflow_server import MlflowServer
from drivetrain.cli.output import Item, write_note
from drivetrain.cli.session import segment

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway

MAX_METRICS = 1000
MAX_ITEMS = 100  # parameters or tags
TRIES = 5
MAX_HISTORY = 25_000
MAX_MEDIA_NAMES, MAX_MEDIA_STEPS = 1000, 500
_SUFFIXES = {"histogram": "json", "table": "json", "text": "txt"}
TAG = "drivetrain."
# What was exported whole: of the samples, of the files.
SAMPLES_TAG, FILES_TAG = f"{TAG}exported_samples", f"{TAG}exported_files"
_STATUS = {
    "succeeded": "FINISHED",
    "stopped": "FINISHED",
    "failed": "FAILED",
    "rejected": "FAILED",
    "cancelled": "KILLED",
    "submitted": "SCHEDULED",
    "queued": "SCHEDULED",
    "paused": "SCHEDULED",
}


@dataclass(slots=True)
class Exported:
    """`num_points`: those added by this export."""

    run_id: str
    address: str
    num_points: int = 0
    num_files: int = 0


@dataclass(slots=True)
class _Run:
    """A run of MLflow as it was at the begin of the export."""

    run_id: str
    experiment_id: str
    artifact_uri: str
    info: Item
    tags: Mapping[str, str]
    params: Mapping[str, str]
    keys: frozenset[str] = field(default_factory=frozenset)


def export_job(server: MlflowServer, gateway: "Gateway", job: Item, experiment: str) -> Exported:
    """Make or complete the run of this job in the experiment."""
    run = _run_of(server, job, _experiment_id(server, experiment))
    address = f"{server.url}/#/experiments/{run.experiment_id}/runs/{run.run_id}"
    exported = Exported(run.run_id, address)
    _log_facts(server, run, job)
    history = History(gateway, job)
    series = list(history.series())
    content = repr([(one.rank, one.name, one.num_samples, one.last_step) for one in series])
    if run.tags.get(SAMPLES_TAG) != (digest := _digest(content)):
        exported.num_points = _log_samples(server, run, history.samples(series))
        _log_items(server, run, "tags", {SAMPLES_TAG: digest})
    exported.num_files = _upload_files(server, gateway, run, job)
    _update(server, run, job)
    return exported


def _experiment_id(server: MlflowServer, name: str) -> str:
    for _ in range(TRIES):
        found = server.get("/experiments/get-by-name", {"experiment_name": name})
        if found is not None:
            experiment = found["experiment"]
            if experiment.get("lifecycle_stage") == "deleted":
                fix = "restore it, or name another one: --experiment NAME"
                raise InvalidInput(f"MLflow's experiment {name!r} is deleted", fix=fix)
            return str(experiment["experiment_id"])
        # None where another export makes it at the same time.
        server.post("/experiments/create", {"name": name})
    raise NoAnswer(f"MLflow has no experiment {name!r:.100} and makes none", fix="export it again")


def _run_of(server: MlflowServer, job: Item, experiment_id: str) -> _Run:
    """The run with the job's id as a tag; made where there is none."""
    query = {
        "experiment_ids": [experiment_id],
        "filter": f"tags.`{TAG}job_id` = '{job['job_id']}'",
        "max_results": 1,
    }
    found = (server.post("/runs/search", query) or {}).get("runs")
    if not found:
        began = facts.seconds(job["started_at"] or job["submitted_at"])
        body = {
            "experiment_id": experiment_id,
            "run_name": job["name"],
            "start_time": int((began or 0.0) * 1000),
            "tags": [{"key": f"{TAG}job_id", "value": job["job_id"]}],
        }
        found = [server.post("/runs/create", body)["run"]]
    info, data = found[0]["info"], found[0].get("data") or {}
    return _Run(
        run_id=info["run_id"],
        experiment_id=experiment_id,
        artifact_uri=info["artifact_uri"],
        info=info,
        tags={one["key"]: one["value"] for one in data.get("tags", ())},
        params={one["key"]: one["value"] for one in data.get("params", ())},
        keys=frozenset(one["key"] for one in data.get("metrics", ())),
    )


def _log_facts(server: MlflowServer, run: _Run, job: Item) -> None:
    params = {
        key(name): str(value)[:MAX_PARAM_CHARACTERS]
        for name, value in facts.hyperparameters(job).items()
    }
    known = facts.tags(job)
    tags = {f"{TAG}{name}": value for name, value in known.items()}
    tags["mlflow.source.name"] = known.get("command") or str(job["job_id"])
    tags["mlflow.source.type"] = "JOB"
    for name in ("commit", "branch"):
        if f"git_{name}" in known:
            tags[f"mlflow.source.git.{name}"] = known[f"git_{name}"]
    if "note" in known:
        tags["mlflow.note.content"] = known["note"]
    # A parameter cannot be changed once it is there.
    missing = {name: value for name, value in params.items() if name not in run.params}
    _log_items(server, run, "params", missing)
    cut = {name: value[:MAX_TAG_CHARACTERS] for name, value in tags.items()}
    _log_items(
        server,
        run,
        "tags",
        {name: value for name, value in cut.items() if run.tags.get(name) != value},
    )


def _log_items(server: MlflowServer, run: _Run, kind: str, items: Mapping[str, str]) -> None:
    for some in _batches(items.items(), MAX_ITEMS):
        _log(server, run, kind, [{"key": name, "value": value} for name, value in some])


def _log(server: MlflowServer, run: _Run, kind: str, items: Sequence[Item]) -> None:
    if server.post("/runs/log-batch", {"run_id": run.run_id, kind: items}) is None:
        raise _deleted()


def _deleted() -> NoAnswer:
    return NoAnswer("the run was deleted in MLflow meanwhile", fix="export it again")


def _log_samples(server: MlflowServer, run: _Run, samples: Iterator[Sample]) -> int:
    """Send those that are not there. Returns how many."""
    num_sent = 0
    missing = chain.from_iterable(
        _missing(server, run, key(name, rank), of_series)
        for (rank, name), of_series in groupby(samples, attrgetter("rank", "name"))
    )
    for metrics in _batches(missing, MAX_METRICS):
        _log(server, run, "metrics", metrics)
        num_sent += len(metrics)
    return num_sent


def _missing(
    server: MlflowServer, run: _Run, name: str, samples: Iterable[Sample]
) -> Iterator[dict[str, Any]]:
    there = set(_points(server, run, name)) if name in run.keys else set()
    for one in samples:
        if not there or point(one.step, one.value) not in there:
            yield {
                "key": name,
                "value": json_value(one.value),
                "timestamp": int(one.at * 1000),
                "step": one.step,
            }


def _points(server: MlflowServer, run: _Run, name: str) -> Iterator[Point]:
    query = {"run_id": run.run_id, "metric_key": name, "max_results": MAX_HISTORY}
    token = ""
    while True:
        page = server.get("/metrics/get-history", {**query, "page_token": token})
        if page is None:
            raise _deleted()
        for one in page.get("metrics", ()):
            yield point(int(one.get("step", 0)), one.get("value", 0.0))
        token = page.get("next_page_token")
        if not token:
            return


def _upload_files(server: MlflowServer, gateway: "Gateway", run: _Run, job: Item) -> int:
    """Spec, result, list of checkpoints, and the files of the job. Returns how many were sent."""
    path = f"/v1/jobs/{segment(job['job_id'])}"
    listed = gateway.get(f"{path}/files")
    documents = {
        "drivetrain/spec.json": facts.spec_of(job),
        "drivetrain/result.json": job.get("result"),
        "drivetrain/checkpoints.json": gateway.get(f"{path}/checkpoints")["checkpoints"],
    }
    texts = {name: json.dumps(one, indent=2) for name, one in documents.items() if one}
    if diff := facts.source(job).get("diff"):
        texts["drivetrain/uncommitted.diff"] = diff
    files = [one for one in downloads.choose(listed["files"], None) if one.get("target") is None]
    media = [*_media(gateway, path)]
    contents = [(one["path"], one["sha256"]) for one in (*files, *media)]
    digest = _digest(repr([texts, contents]))
    if run.tags.get(FILES_TAG) == digest:
        return 0
    root = _artifact_root(run.artifact_uri)
    if root is None:
        write_note(
            f"no files are sent: MLflow keeps artifacts itself at {run.artifact_uri!r:.100}; "
            "start its server with --serve-artifacts"
        )
        return 0
    with tempfile.TemporaryDirectory() as directory:
        target = Path(directory) / "file"
        for name, text in texts.items():
            target.write_text(text)
            server.upload(f"{root}/{name}", target)
        for one in files:
            query = {"checkpoint": listed["checkpoint_id"], "path": one["path"]}
            downloads.save(gateway, f"{path}/files/content", query, one, target)
            server.upload(f"{root}/files/{file_path(one['path'])}", target)
        for one in media:
            query = {name: one[name] for name in ("name", "step", "item")}
            downloads.save(gateway, f"{path}/media/content", query, one, target)
            server.upload(f"{root}/media/{file_path(one['path'])}", target)
    _log_items(server, run, "tags", {FILES_TAG: digest})
    return len(texts) + len(files) + len(media)


def _media(gateway: "Gateway", path: str) -> Iterator[Item]:
    """Pictures, tables and the like, each with the path that it gets: NAME/STEP-ITEM.png."""
    for named in gateway.get(f"{path}/media", {"limit": MAX_MEDIA_NAMES})["names"]:
        to_step: int | None = None
        while True:
            query = {"name": named["name"], "to_step": to_step, "limit": MAX_MEDIA_STEPS}
            items = gateway.get(f"{path}/media/items", query)["items"]
            for one in items:
                suffix = one["image_form"] or _SUFFIXES.get(one["media"])
                ending = f".{suffix}" if suffix else f"-{one['file_name'] or 'file'}"
                yield {**one, "path": f"{one['name']}/{one['step']}-{one['item']}{ending}"}
            first = min((one["step"] for one in items), default=0)
            if not items or first <= named["first_step"]:
                break
            to_step = first - 1


def _artifact_root(uri: str) -> str | None:
    """Where the server takes artifacts of this run; None where it takes none."""
    scheme, _, rest = uri.partition(":")
    if scheme != "mlflow-artifacts":
        return None
    if rest.startswith("//"):
        rest = rest[2:].partition("/")[2]
    return rest.strip("/")


def _update(server: MlflowServer, run: _Run, job: Item) -> None:
    status = _STATUS.get(job["state"], "RUNNING")
    changes: dict[str, Any] = {"status": status}
    ended = facts.seconds(job["finished_at"])
    if ended is not None:
        changes["end_time"] = int(ended * 1000)
    is_same = all(run.info.get(name) == value for name, value in changes.items())
    if not is_same and server.post("/runs/update", {"run_id": run.run_id, **changes}) is None:
        raise _deleted()


def _digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()[:16]


def _batches(items: Iterable[Any], size: int) -> Iterator[Sequence[Any]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch
