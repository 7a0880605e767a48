"""OpenLineage events of a job (`drivetrain_schemas.openlineage`), to a file or a service.

In: the views of the job, of its study, and of its checkpoints.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from drivetrain.cli.errors import Refused
from drivetrain.cli.exchange import facts
from drivetrain.cli.output import Item
from drivetrain_schemas.openlineage import (
    ENDPOINT,
    Document,
    LineageCheckpoint,
    LineageJob,
    LineageRun,
    end_of,
    run_event,
)

Event = Document


def events_of(job: Item, study: Item | None, checkpoints: Sequence[Item]) -> Iterator[Event]:
    """Of each run its begin, and its end or how far it is; in order of time."""
    told = _job(job, study)
    for run in job["runs"]:
        began = run["started_at"] or run["starting_at"]
        if began is None:
            continue
        restored = [
            _checkpoint(one) for one in checkpoints if one["restored_by_attempt"] == run["attempt"]
        ]
        saved = [
            _checkpoint(one)
            for one in checkpoints
            if one["run_id"] == run["run_id"] and one["state"] == "committed"
        ]
        error = run["detail"] or f"exit code {run['exit_code']}"
        yield run_event(told, LineageRun(run["run_id"], restored), "START", began)
        whole = LineageRun(run["run_id"], restored, saved, error)
        if run["ended_at"] is not None:
            yield run_event(told, whole, end_of(run["state"]), run["ended_at"])
        elif saved:
            newest = max(one["committed_at"] for one in checkpoints if one["committed_at"])
            yield run_event(told, whole, "RUNNING", max(began, newest))


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


def _job(job: Item, study: Item | None) -> LineageJob:
    code, source = facts.spec_of(job).get("code") or {}, facts.source(job)
    return LineageJob(
        tenant_id=job["tenant_id"],
        job_id=job["job_id"],
        name=job["name"],
        data=facts.data(job),
        code_uri=code.get("uri"),
        code_sha256=code.get("sha256"),
        commit=source.get("commit"),
        branch=source.get("branch"),
        study_id=study["study_id"] if study else None,
        study_name=study["name"] if study else None,
    )


def _checkpoint(one: Item) -> LineageCheckpoint:
    return LineageCheckpoint(
        one["checkpoint_id"], one["step"], one["size_bytes"], one["num_shards"]
    )
