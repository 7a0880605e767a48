"""Exports to a real MLflow server, read back with its own client: every point equal, once."""

import contextlib
import math
from pathlib import Path
from typing import Any

import httpx
import pytest

from drivetrain.cli.errors import NoAnswer
from drivetrain.cli.exchange import mlflow as mlflow_export
from drivetrain.cli.exchange.mlflow_names import file_path, key
from drivetrain.cli.exchange.mlflow_server import MlflowServer as Client
from tests.exchange.mlflow_server import MlflowServer, run_with_tools
from tests.exchange.stored_job import BEGAN_SECONDS, StoredJob, make_job

pytestmark = pytest.mark.timeout(900)
# Everything of the runs of an experiment, as MLflow's own client reads it.
READ = """
import json, sys
from mlflow.tracking import MlflowClient
client = MlflowClient(sys.argv[1])
ids = [client.get_experiment_by_name(name).experiment_id for name in sys.argv[2:]]
runs = client.search_runs(ids)
def files(run, path=None):
    for one in client.list_artifacts(run.info.run_id, path):
        if one.is_dir: yield from files(run, one.path)
        else: yield one.path
def history(run, key):
    return [[one.step, repr(one.value), one.timestamp]
            for one in client.get_metric_history(run.info.run_id, key)]
print(json.dumps([{
    "status": run.info.status, "name": run.info.run_name, "start": run.info.start_time,
    "end": run.info.end_time, "params": run.data.params, "tags": run.data.tags,
    "metrics": {key: history(run, key) for key in run.data.metrics},
    "files": sorted(files(run)),
    "content": "files/out/model.txt" in list(files(run)) and open(
        client.download_artifacts(run.info.run_id, "files/out/model.txt")).read(),
} for run in runs]))
"""
LARGEST = 1.7976931348623157e308


def export(server: MlflowServer, job: StoredJob, experiment: str) -> mlflow_export.Exported:
    return export_by(Client(server.url, {}), job, experiment)


def export_by(client: Client, job: StoredJob, experiment: str) -> mlflow_export.Exported:
    with contextlib.closing(client), job.gateway() as gateway:
        return mlflow_export.export_job(client, gateway, job.view, experiment)


def points_of(job: StoredJob) -> dict[str, list[tuple[int, str]]]:
    """What MLflow should have: a store in SQL has the largest number for an infinite one."""
    found = {}
    for (rank, name), columns in job.expected().items():
        clipped = {
            step: value if math.isnan(value) else max(-LARGEST, min(LARGEST, value))
            for step, (_, value) in columns.items()
        }
        found[key(name, rank)] = [(step, repr(clipped[step])) for step in sorted(clipped)]
    return found


def points_in(run: dict[str, Any]) -> dict[str, list[tuple[int, str]]]:
    return {
        name: sorted((step, value) for step, value, _ in history)
        for name, history in run["metrics"].items()
    }


def test_every_point_and_fact_is_there_and_nothing_is_added_by_a_second_export(
    tools: Path, mlflow: MlflowServer
) -> None:
    job = make_job()
    first = export(mlflow, job, "whole")
    (run,) = run_with_tools(tools, READ, mlflow.url, "whole")
    assert points_in(run) == points_of(job)
    assert first.num_points == sum(map(len, points_of(job).values()))
    assert (run["status"], run["name"]) == ("FINISHED", "digits")
    assert run["start"] == BEGAN_SECONDS * 1000
    assert run["end"] == (BEGAN_SECONDS + 3600) * 1000
    assert run["params"] == {"learning_rate": "0.05", "optimizer": "sgd", "nesterov": "True"}
    assert run["tags"]["drivetrain.job_id"] == job.view["job_id"]
    assert run["tags"]["drivetrain.tags"] == "baseline"
    assert run["tags"]["drivetrain.seed"] == "7"
    assert run["tags"]["mlflow.source.git.commit"] == "d" * 40
    assert run["files"] == [
        "drivetrain/checkpoints.json",
        "drivetrain/result.json",
        "drivetrain/spec.json",
        "drivetrain/uncommitted.diff",
        "files/out/model.txt",
        f"files/{file_path('weird #name?.txt')}",
        *(f"media/sample s/{step}-0.png" for step in (10, 20, 30)),
    ]
    assert run["content"] == "weights\n"
    at = {step: stamp for step, _, stamp in run["metrics"]["loss"]}
    assert at[0] == BEGAN_SECONDS * 1000
    assert at[1000] == pytest.approx((BEGAN_SECONDS + 100) * 1000, abs=1)
    assert at[2999] == pytest.approx((BEGAN_SECONDS + 3699.9) * 1000, abs=1)

    again = export(mlflow, job, "whole")
    assert (again.run_id, again.num_points, again.num_files) == (first.run_id, 0, 0)
    assert run_with_tools(tools, READ, mlflow.url, "whole") == [run]


def test_a_job_that_went_on_is_completed_in_its_run(tools: Path, mlflow: MlflowServer) -> None:
    job = make_job()
    whole = dict(job.samples)
    job.samples = {(1, 0, "loss"): {step: 1 / (step + 1) for step in range(1500)}}
    job.view |= {"state": "running", "finished_at": None}
    export(mlflow, job, "going")
    (run,) = run_with_tools(tools, READ, mlflow.url, "going")
    assert (run["status"], run["end"]) == ("RUNNING", None)
    job.samples = {**whole, (2, 0, "loss"): {step: 2 / (step + 1) for step in range(2500, 3000)}}
    job.view |= {"state": "succeeded", "finished_at": "2026-11-22T11:00:00+00:00"}
    export(mlflow, job, "going")
    (run,) = run_with_tools(tools, READ, mlflow.url, "going")
    assert points_in(run) == points_of(job)
    assert run["status"] == "FINISHED"


class CutOff(httpx.HTTPTransport):
    """The connection after so many requests: the command is killed, or the server is."""

    def __init__(self, num_requests: int, then: Any) -> None:
        super().__init__()
        self._num_left, self._then = num_requests, then

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self._num_left -= 1
        if self._num_left == 0:
            response = super().handle_request(request)
            response.read()
            self._then()
            raise httpx.ReadError("cut off after the server had answered")
        return super().handle_request(request)


def test_an_export_that_is_killed_goes_on_where_it_was(tools: Path, mlflow: MlflowServer) -> None:
    """At each of its requests, which the server has received: nothing is there twice."""

    class Killed(BaseException):
        pass

    def kill() -> None:
        raise Killed

    job = make_job()
    for num_requests in range(2, 100):
        client = Client(mlflow.url, {}, CutOff(num_requests, kill))
        try:
            export_by(client, job, f"killed {num_requests}")
            break
        except Killed:
            export(mlflow, job, f"killed {num_requests}")
    assert 12 < num_requests < 40
    names = [f"killed {number}" for number in range(2, num_requests)]
    runs = run_with_tools(tools, READ, mlflow.url, *names)
    assert len(runs) == len(names)
    for run in runs:
        assert points_in(run) == points_of(job)
        assert len(run["files"]) == 9


def test_a_server_that_is_killed_and_away_for_an_hour_gets_everything_once(
    tools: Path, mlflow: MlflowServer
) -> None:
    """The clock is that of the pauses: an hour passes while the real server stands still."""
    waited: list[float] = []

    def sleep(seconds: float) -> None:
        waited.append(seconds)
        if sum(waited) >= 3600:
            mlflow.start()

    job = make_job()
    exported = export_by(Client(mlflow.url, {}, CutOff(7, mlflow.stop), sleep), job, "away")
    (run,) = run_with_tools(tools, READ, mlflow.url, "away")
    assert sum(waited) >= 3600
    assert max(waited) <= 75
    assert len(waited) < 100
    assert points_in(run) == points_of(job)
    assert exported.num_points == sum(map(len, points_of(job).values()))


def test_a_server_that_was_never_there_is_given_up_soon() -> None:
    waited: list[float] = []
    client = Client("http://127.0.0.1:9", {}, None, waited.append)
    refused = pytest.raises(NoAnswer, match=r"127\.0\.0\.1:9 does not answer")
    with contextlib.closing(client), refused:
        client.get("/experiments/get-by-name", {"experiment_name": "x"})
    assert sum(waited) < 60
