"""Where a checkpoint is in the object store: its directory and the key of its manifest.

Only such keys are ever read or deleted, so no report of a pod can reach outside its own job's
directory. `drivetrain_schemas.checkpoint_names` defines the names.
"""

from dataclasses import dataclass

from drivetrain_schemas.checkpoint_names import (
    MANIFEST,
    CheckpointOrder,
    find_name,
    job_directory,
    parse_name,
)


@dataclass(frozen=True, slots=True)
class Location:
    """One checkpoint's directory, with what its name says. `directory` ends with a slash."""

    manifest_key: str
    directory: str
    fence: int
    step: int


def job_prefix(tenant_id: str, job_id: str) -> str:
    """What the keys of all checkpoints of a job begin with."""
    return f"{job_directory(tenant_id, job_id)}/"


def locate(tenant_id: str, job_id: str, manifest_key: str) -> Location | None:
    """None where the key is not that of a manifest of this job."""
    prefix = job_prefix(tenant_id, job_id)
    order = parse_name(manifest_key.removeprefix(prefix).removesuffix(f"/{MANIFEST}"))
    if order is None or manifest_key != f"{prefix}{order.name}/{MANIFEST}":
        return None
    return _location(prefix, order)


def directory_of(tenant_id: str, job_id: str, key: str) -> Location | None:
    """The checkpoint to whose directory this key of an object belongs."""
    prefix = job_prefix(tenant_id, job_id)
    name, slash, _ = key.removeprefix(prefix).partition("/")
    order = parse_name(name)
    if order is None or not slash or not key.startswith(prefix):
        return None
    return _location(prefix, order)


def mentioned(tenant_id: str, job_id: str, text: str) -> Location | None:
    """The checkpoint of this job that a pod's text names, by its key or its directory's name."""
    order = find_name(text)
    return None if order is None else _location(job_prefix(tenant_id, job_id), order)


def _location(prefix: str, order: CheckpointOrder) -> Location:
    directory = f"{prefix}{order.name}/"
    return Location(f"{directory}{MANIFEST}", directory, order.fence, order.step)
