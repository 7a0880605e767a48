"""Event files, tables and lineage, read by TensorBoard, pandas and OpenLineage's client."""

import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli import session
from tests.exchange.mlflow_server import run_with_tools
from tests.exchange.stored_job import BEGAN_SECONDS, CPU, JOB_ID, StoredJob, make_job
from tests.unit.cli.conftest import RunCli, cli

__all__ = ["cli"]  # a fixture

READ_EVENTS = """
import json, sys, os, glob
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2
loader = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0})
loader.Reload()
tags = loader.Tags()["scalars"]
scalars = {tag: [[e.step, repr(e.value), e.wall_time] for e in loader.Scalars(tag)] for tag in tags}
found = {}
for tag, content in loader.summary_metadata.items():
    if content.plugin_data.plugin_name == "hparams":
        data = plugin_data_pb2.HParamsPluginData.FromString(content.plugin_data.content)
        for name, value in data.session_start_info.hparams.items():
            found[name] = getattr(value, value.WhichOneof("kind"))
        if data.HasField("session_end_info"):
            found["status"] = data.session_end_info.status
print(json.dumps({"scalars": scalars, "hparams": found}))
"""
READ_TABLES = """
import json, sys
import pandas
csv = pandas.read_csv(sys.argv[1], parse_dates=["time"], float_precision="round_trip")
parquet = pandas.read_parquet(sys.argv[2])
csv["time"] = csv["time"].astype(parquet["time"].dtype)
pandas.testing.assert_frame_equal(csv, parquet, check_dtype=False, check_exact=True)
rows = parquet.drop(columns=["time", "value"]).values.tolist()
times = [one.timestamp() for one in parquet["time"]]
print(json.dumps([[*row, at, repr(value)]
                  for row, at, value in zip(rows, times, parquet["value"].tolist())]))
"""
READ_LINEAGE = """
import json, sys
from openlineage.client import event_v2 as v2
from openlineage.client.facet_v2 import (
    parent_run, error_message_run, job_type_job, source_code_location_job,
    dataset_version_dataset, output_statistics_output_dataset)
from openlineage.client.serde import Serde
FACETS = {
    "errorMessage": error_message_run.ErrorMessageRunFacet,
    "jobType": job_type_job.JobTypeJobFacet,
    "sourceCodeLocation": source_code_location_job.SourceCodeLocationJobFacet,
    "version": dataset_version_dataset.DatasetVersionDatasetFacet,
    "outputStatistics": output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet}
def facet(name, content):
    given = {k: v for k, v in content.items() if not k.startswith("_")}
    if name == "parent":
        built = parent_run.ParentRunFacet(
            run=parent_run.Run(**given["run"]), job=parent_run.Job(**given["job"]),
            producer=content["_producer"])
    else:
        built = FACETS[name](**given, producer=content["_producer"])
    assert built._schemaURL == content["_schemaURL"], (built._schemaURL, content["_schemaURL"])
    return built
def facets(content): return {name: facet(name, one) for name, one in content.items()}
def dataset(kind, one, more):
    rest = {more: facets(one[more])} if more in one else {}
    return kind(namespace=one["namespace"], name=one["name"], facets=facets(one["facets"]), **rest)
for line in open(sys.argv[1]):
    one = json.loads(line)
    event = v2.RunEvent(
        eventType=v2.RunState[one["eventType"]], eventTime=one["eventTime"],
        run=v2.Run(runId=one["run"]["runId"], facets=facets(one["run"]["facets"])),
        job=v2.Job(one["job"]["namespace"], one["job"]["name"], facets(one["job"]["facets"])),
        inputs=[dataset(v2.InputDataset, x, "inputFacets") for x in one["inputs"]],
        outputs=[dataset(v2.OutputDataset, x, "outputFacets") for x in one["outputs"]],
        producer=one["producer"])
    def drop(x):
        if isinstance(x, dict): return {k: drop(v) for k, v in x.items() if v not in ({}, [], None)}
        return [drop(v) for v in x] if isinstance(x, list) else x
    assert drop(Serde.to_dict(event)) == drop(one), (Serde.to_dict(event), one)
print("true")
"""


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> StoredJob:
    stored = make_job()
    monkeypatch.setattr(session, "connect", stored.gateway)
    return stored


def rows_of(job: StoredJob) -> list[list[Any]]:
    return [
        [JOB_ID, attempt, rank, name, step, repr(float(value))]
        for (rank, name), columns in sorted(job.expected().items())
        for step, (attempt, value) in sorted(columns.items())
    ]


def test_tensorboard_reads_every_scalar_and_the_hyperparameters(
    tools: Path, job: StoredJob, cli: RunCli, tmp_path: Path
) -> None:
    logs = tmp_path / "logs"
    ran = cli("job", "export", JOB_ID, "--tensorboard", str(logs))
    assert ran.code == 0, ran.err
    (directory,) = logs.iterdir()
    assert directory.name == f"digits-{JOB_ID[:12]}"
    read = run_with_tools(tools, READ_EVENTS, str(directory))
    expected = {}
    for (rank, name), columns in job.expected().items():
        tag = name if rank == 0 else f"rank_{rank}/{name}"
        expected[tag] = [[step, float32(columns[step][1])] for step in sorted(columns)]
    scalars = {tag: [one[:2] for one in events] for tag, events in read["scalars"].items()}
    assert scalars == expected
    assert read["scalars"]["loss"][100][2] == pytest.approx(BEGAN_SECONDS + 10)
    hyperparameters = job.view["hyperparameters"]
    assert read["hparams"] == {**hyperparameters, "status": 1}


def float32(value: float) -> str:
    try:
        return repr(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return repr(math.copysign(math.inf, value))


def test_pandas_reads_the_same_rows_from_csv_and_parquet(
    tools: Path, job: StoredJob, cli: RunCli, tmp_path: Path
) -> None:
    csv, parquet = tmp_path / "samples.csv", tmp_path / "samples.parquet"
    ran = cli("job", "export", JOB_ID, "--csv", str(csv), "--parquet", str(parquet))
    assert ran.code == 0, ran.err
    read = run_with_tools(tools, READ_TABLES, str(csv), str(parquet))
    assert [[*row[:5], row[6]] for row in read] == rows_of(job)
    at = {row[4]: row[5] for row in read if (row[2], row[3]) == (0, "loss")}
    assert at[1000] == pytest.approx(BEGAN_SECONDS + 100)
    assert at[2999] == pytest.approx(BEGAN_SECONDS + 3699.9)
    of_system = [row[4:6] for row in read if row[3] == CPU]
    assert of_system == [[second, BEGAN_SECONDS + second] for second in (2, 12, 22)]


def test_lineage_is_what_openlineages_own_client_would_send(
    tools: Path, job: StoredJob, cli: RunCli, tmp_path: Path
) -> None:
    file = tmp_path / "events.jsonl"
    assert cli("job", "export", JOB_ID, "--openlineage", str(file)).code == 0
    assert run_with_tools(tools, READ_LINEAGE, str(file)) is True
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert [one["eventType"] for one in events] == ["START", "FAIL", "START", "COMPLETE"]
    assert events[1]["run"]["facets"]["errorMessage"]["message"] == "the node is gone"
    assert [one["name"] for one in events[0]["inputs"]] == ["digits/v3"]
    assert [one["name"] for one in events[1]["outputs"]] == [f"{JOB_ID}/ckpt_1999"]
    assert [one["name"] for one in events[2]["inputs"]] == ["digits/v3", f"{JOB_ID}/ckpt_1999"]
    assert [one["name"] for one in events[3]["outputs"]] == [f"{JOB_ID}/ckpt_2999"]
    location = events[0]["job"]["facets"]["sourceCodeLocation"]
    assert (location["type"], location["version"], location["branch"]) == ("git", "d" * 40, "main")
    assert len({one["run"]["runId"] for one in events}) == 2
    again = tmp_path / "again.jsonl"
    assert cli("job", "export", JOB_ID, "--openlineage", str(again)).code == 0
    assert again.read_text() == file.read_text()
