"""Events of OpenLineage's schema 2-0-2: what each run read and wrote, and how it ended. Pure.

The command line makes them from the views of a job, the metrics service from events. The same run
gives the same events either way: their ids are made from ours, their times are those of the run.
"""

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from drivetrain_schemas.addresses import read_address
from drivetrain_schemas.descriptions import DataUsed

PRODUCER = "urn:drivetrain:platform"
SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
ENDPOINT = "/api/v1/lineage"
_FACETS = "https://openlineage.io/spec/facets"
_NAMES = uuid.UUID("6ee1b1e9-5a4b-5f2c-9c7e-3a3f1c1f0d57")

Kind = Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT", "OTHER"]
Document = dict[str, Any]

_ENDS: Mapping[str, Kind] = {"succeeded": "COMPLETE", "failed": "FAIL", "lost": "FAIL"}


@dataclass(frozen=True, slots=True)
class LineageJob:
    """What lineage tells of a job. `data` may hold a password or a signature, which stay here."""

    tenant_id: str
    job_id: str
    name: str | None = None
    data: str | None = None
    code_uri: str | None = None
    code_sha256: str | None = None
    commit: str | None = None
    branch: str | None = None
    study_id: str | None = None
    study_name: str | None = None


@dataclass(frozen=True, slots=True)
class LineageCheckpoint:
    checkpoint_id: str
    step: int
    size_bytes: int | None = None
    num_shards: int | None = None


@dataclass(frozen=True, slots=True)
class LineageRun:
    """A run with the checkpoint it went on from, and those it saved. `error`: why it failed.
    `data`: what it says that it uses."""

    run_id: str
    restored: Sequence[LineageCheckpoint] = ()
    saved: Sequence[LineageCheckpoint] = ()
    error: str | None = None
    data: Sequence[DataUsed] = ()


def end_of(run_state: str) -> Kind:
    """The kind of the event about the end of a run in this state."""
    return _ENDS.get(run_state, "ABORT")


def run_event(job: LineageJob, run: LineageRun, kind: Kind, at: str) -> Document:
    """`at`: a time of RFC 3339."""
    return {
        "eventType": kind,
        "eventTime": at,
        "run": {"runId": _uuid(run.run_id), "facets": _run_facets(job, run, kind)},
        "job": {
            "namespace": _namespace(job),
            "name": job.name or job.job_id,
            "facets": _job_facets(job),
        },
        "inputs": [*_data(job, run), *(_dataset(job, one) for one in run.restored)],
        "outputs": [_output(job, one) for one in run.saved],
        "producer": PRODUCER,
        "schemaURL": SCHEMA,
    }


def _run_facets(job: LineageJob, run: LineageRun, kind: Kind) -> Document:
    # The run belongs to its job, which is tried again, and the job may belong to a study.
    parent_id, parent_name = job.job_id, job.name or job.job_id
    if job.study_id is not None:
        parent_id, parent_name = job.study_id, job.study_name or job.study_id
    parent = {"namespace": _namespace(job), "name": parent_name}
    facets: Document = {
        "parent": _facet(
            "1-2-0/ParentRunFacet", {"run": {"runId": _uuid(parent_id)}, "job": parent}
        ),
    }
    if kind == "FAIL":
        content = {"message": run.error or "", "programmingLanguage": "PYTHON"}
        facets["errorMessage"] = _facet("1-0-1/ErrorMessageRunFacet", content)
    return facets


def _job_facets(job: LineageJob) -> Document:
    content = {"processingType": "BATCH", "integration": "DRIVETRAIN", "jobType": "TRAINING"}
    facets = {"jobType": _facet("2-0-4/JobTypeJobFacet", content)}
    if job.code_uri:
        location = {"type": "archive", "url": job.code_uri, "version": job.code_sha256}
        if job.commit:
            location |= {"type": "git", "version": job.commit}
        if job.branch:
            location["branch"] = job.branch
        facets["sourceCodeLocation"] = _facet("1-1-0/SourceCodeLocationJobFacet", location)
    return facets


def _data(job: LineageJob, run: LineageRun) -> list[Document]:
    """Each once: what the run says of the job's data replaces what the job says."""
    declared = [DataUsed(uri=job.data)] if job.data else []
    found: dict[tuple[str, str], Document] = {}
    for one in (*declared, *run.data):
        scheme, host, path = read_address(one.uri)
        where = f"{scheme}://{host}" if host else scheme or "file"
        name = path.lstrip("/") or "/"
        version = ", ".join(filter(None, (one.version, one.checksum)))
        facets = _version(version) if version else {}
        found[where, name] = {"namespace": where, "name": name, "facets": facets}
    return list(found.values())


def _version(version: str) -> Document:
    return {"version": _facet("1-0-1/DatasetVersionDatasetFacet", {"datasetVersion": version})}


def _dataset(job: LineageJob, one: LineageCheckpoint) -> Document:
    name = f"{job.job_id}/{one.checkpoint_id}"
    return {"namespace": _namespace(job), "name": name, "facets": _version(str(one.step))}


def _output(job: LineageJob, one: LineageCheckpoint) -> Document:
    dataset = _dataset(job, one)
    if one.size_bytes is not None:
        size = {"size": one.size_bytes, "fileCount": one.num_shards or 0}
        statistics = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", size)
        dataset["outputFacets"] = {"outputStatistics": statistics}
    return dataset


def _namespace(job: LineageJob) -> str:
    return f"drivetrain://{job.tenant_id}"


def _uuid(our_id: str) -> str:
    """OpenLineage takes UUIDs only."""
    return str(uuid.uuid5(_NAMES, our_id))


def _facet(schema: str, content: Mapping[str, Any]) -> Document:
    name = schema.rpartition("/")[2]
    return {
        "_producer": PRODUCER,
        "_schemaURL": f"{_FACETS}/{schema}.json#/$defs/{name}",
        **content,
    }
