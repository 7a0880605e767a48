"""What is known of a job, in the words that other tools have for it. Pure.

In: the job's view, GET /v1/jobs/{id}.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from drivetrain.cli.output import Item
from drivetrain_schemas.addresses import read_address
from drivetrain_schemas.redaction import redacted

ENDED = frozenset({"succeeded", "failed", "cancelled", "stopped", "rejected"})


def spec_of(job: Item) -> Item:
    """The spec as people see it; empty where the job was refused."""
    spec: Item = redacted(job.get("spec") or {})
    return spec


def hyperparameters(job: Item) -> Mapping[str, Any]:
    """Those of the specification, and those that the script names itself."""
    found: Mapping[str, Any] = redacted(job.get("hyperparameters") or {})
    return found


def seconds(moment: str | None) -> float | None:
    """A time of the API in seconds of the epoch."""
    return None if moment is None else datetime.fromisoformat(moment).timestamp()


def tags(job: Item) -> dict[str, str]:
    """Facts by name, as text; only those that are known."""
    spec = spec_of(job)
    resources = spec.get("resources") or {}
    result = job.get("result") or {}
    known = {
        "job_id": job["job_id"],
        "state": job["state"],
        "detail": job.get("detail"),
        "attempts": job.get("attempt"),
        "study_id": job.get("study_id"),
        "trial": job.get("trial_number"),
        "project": project(job),
        "tags": ", ".join(job.get("tags") or ()),
        "note": job.get("note"),
        "command": " ".join(spec.get("command") or ()),
        "data": data(job),
        "code_sha256": (spec.get("code") or {}).get("sha256"),
        "image": spec.get("image"),
        "git_commit": source(job).get("commit"),
        "git_branch": source(job).get("branch"),
        "is_dirty": source(job).get("is_dirty"),
        "pool": job.get("pool"),
        "devices": job.get("devices"),
        "device_type": resources.get("device_type"),
        "max_steps": spec.get("max_steps"),
        "seed": (result.get("seed") or {}).get("number", spec.get("seed")),
        "charged_usd": f"{(job.get('charged_micro_usd') or 0) / 1e6:.6f}",
    }
    return {name: str(value) for name, value in known.items() if value not in (None, "")}


def data(job: Item) -> str | None:
    """The address of the data, for other systems: without a query, which is not its name."""
    given: str | None = spec_of(job).get("data")
    if given is None:
        return None
    scheme, host, path = read_address(given)
    return f"{scheme}://{host}{path}"


def project(job: Item) -> str | None:
    """As people name it now."""
    found: str | None = job.get("project") or spec_of(job).get("project")
    return found


def source(job: Item) -> Item:
    """The state of the Git repository that the code was taken from; empty where it is unknown."""
    found: Item = spec_of(job).get("source") or {}
    return found


def label(job: Item) -> str:
    """A readable name that no other job has, and that can be a file's: digits-job_2345abcd."""
    name = "".join(one if one.isalnum() or one in "._-" else "_" for one in job["name"] or "job")
    return f"{name.lstrip('.')[:80] or 'job'}-{job['job_id'][:12]}"
