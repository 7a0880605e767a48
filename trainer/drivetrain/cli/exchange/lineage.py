"""OpenLineage events of a job: what each of its runs read and wrote, and how it ended.

In: the views of the job, of its study, and of its checkpoints. Out: events of OpenLineage's schema
2-0-2. The same job gives the same events: their ids are made from ours, their times are those of
the runs.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from drivetrain.cli.errors import Refused
from drivetrain.cli.exchange import facts
from drivetrain.cli.output import Item

PRODUCER = "https://pypi.org/project/drivetrain"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
ENDPOINT = "/api/v1/lineage"
_FACETS = "https://openlineage.io/spec/facets"
_NAMES = uuid.UUID("6ee1b1e9-5a4b-5f2c-9c7e-3a3f1c1f0d57")
_ENDS = {"succeeded": "COMPLETE", "failed": "FAIL", "lost": "FAIL"}  # else ABORT

Event = dict[str, Any]


def events_of(job: Item, study: Item | None, checkpoints: Sequence[Item]) -> Iterator[Event]:
    """Of each run its begin, and its end or how far it is; in order of time."""
    for run in job["runs"]:
        began = run["started_at"] or run["starting_at"]
        if began is None:
            continue
        inputs = _inputs(job, run, checkpoints)
        yield _event(job, study, run, "START", began, inputs, [])
        outputs = [
            _checkpoint(job, one)
            for one in checkpoints
            if one["run_id"] == run["run_id"] and one["state"] == "committed"
        ]
        if run["ended_at"] is not None:
            kind = _ENDS.get(run["state"], "ABORT")
            yield _event(job, study, run, kind, run["ended_at"], inputs, outputs)
        elif outputs:
            newest = max(one["committed_at"] for one in checkpoints if one["committed_at"])
            yield _event(job, study, run, "RUNNING", max(began, newest), inputs, outputs)


def write(target: Path, events: Iterable[Event]) -> int:
    """A line each. Returns their number."""
    num = 0
    with target.open("w", encoding="utf-8") as file:
        for event in events:
            file.write(json.dumps(event) + "\n")
            num += 1
    return num


def send(url: str, variables: Mapping[str, str], events: Iterable[Event]) -> int:
    """To a service that takes events. `variables`: OPENLINEAGE_API_KEY, as its client."""
    from drivetrain.cli.exchange.patient import PatientClient, Server

    parts = urlsplit(url)
    path = parts.path if parts.path.strip("/") else ENDPOINT
    key = variables.get("OPENLINEAGE_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    base = f"{parts.scheme}://{parts.netloc}"
    client = PatientClient(Server("The OpenLineage service", base, headers))
    num = 0
    try:
        for event in events:
            response = client.request("POST", path, json=event)
            if not response.is_success:
                raise Refused(f"{url} refused ({response.status_code}): {response.text:.300}")
            num += 1
    finally:
        client.close()
    return num


def _event(
    job: Item,
    study: Item | None,
    run: Item,
    kind: str,
    at: str,
    inputs: Sequence[Event],
    outputs: Sequence[Event],
) -> Event:
    return {
        "eventType": kind,
        "eventTime": at,
        "run": {"runId": _uuid(run["run_id"]), "facets": _run_facets(job, study, run, kind)},
        "job": {
            "namespace": _namespace(job),
            "name": job["name"] or job["job_id"],
            "facets": _job_facets(job),
        },
        "inputs": list(inputs),
        "outputs": list(outputs),
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
    }


def _run_facets(job: Item, study: Item | None, run: Item, kind: str) -> Event:
    # The run belongs to its job, which is tried again, and the job may belong to a study.
    parent_id, parent_name = job["job_id"], job["name"] or job["job_id"]
    if study is not None:
        parent_id, parent_name = study["study_id"], study["name"]
    parent = {"namespace": _namespace(job), "name": parent_name}
    facets: Event = {
        "parent": _facet(
            "1-2-0/ParentRunFacet", {"run": {"runId": _uuid(parent_id)}, "job": parent}
        ),
    }
    if kind == "FAIL":
        message = run["detail"] or f"exit code {run['exit_code']}"
        content = {"message": message, "programmingLanguage": "PYTHON"}
        facets["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet", content)
    return facets


def _job_facets(job: Item) -> Event:
    content = {"processingType": "BATCH", "integration": "DRIVETRAIN", "jobType": "TRAINING"}
    facets = {"jobType": _facet("2-0-4/JobTypeJobFacet", content)}
    code, source = facts.spec_of(job).get("code"), facts.source(job)
    if code:
        location = {"type": "archive", "url": code["uri"], "version": code["sha256"]}
        if "commit" in source:
            location |= {"type": "git", "version": source["commit"]}
        if source.get("branch"):
            location["branch"] = source["branch"]
        name = "1-1-0/SourceCodeLocationJobFacet"
        facets["sourceCodeLocation"] = _facet(name, location)
    return facets


def _inputs(job: Item, run: Item, checkpoints: Sequence[Item]) -> list[Event]:
    """The data, and the checkpoint that the run went on from."""
    found = [
        _checkpoint(job, one) for one in checkpoints if one["restored_by_attempt"] == run["attempt"]
    ]
    data = facts.data(job)
    if data:
        parts = urlsplit(data)
        where = f"{parts.scheme}://{parts.netloc}" if parts.netloc else parts.scheme
        found.insert(0, {"namespace": where, "name": parts.path.lstrip("/") or "/", "facets": {}})
    return [{name: value for name, value in one.items() if name != "outputFacets"} for one in found]


def _checkpoint(job: Item, one: Item) -> Event:
    version = _facet("1-0-1/DatasetVersionDatasetFacet", {"datasetVersion": str(one["step"])})
    dataset: Event = {
        "namespace": _namespace(job),
        "name": f"{job['job_id']}/{one['checkpoint_id']}",
        "facets": {"version": version},
    }
    if one["size_bytes"] is not None:
        size = {"size": one["size_bytes"], "fileCount": one["num_shards"] or 0}
        statistics = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", size)
        dataset["outputFacets"] = {"outputStatistics": statistics}
    return dataset


def _namespace(job: Item) -> str:
    return f"drivetrain://{job['tenant_id']}"


def _uuid(our_id: str) -> str:
    """OpenLineage takes UUIDs only."""
    return str(uuid.uuid5(_NAMES, our_id))


def _facet(schema: str, content: Mapping[str, Any]) -> Event:
    name = schema.rpartition("/")[2]
    return {
        "_producer": PRODUCER,
        "_schemaURL": f"{_FACETS}/{schema}.json#/$defs/{name}",
        **content,
    }
