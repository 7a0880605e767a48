"""Where a checkpoint lies: `checkpoints/<tenant>/<job>/f<fence>-s<step>-<8 hex>/manifest.json`.

Only such keys are ever looked at or deleted, so nothing a pod says leads out of its own job's
prefix. Names of directories sort as checkpoints follow each other.
"""

import re
from dataclasses import dataclass

MANIFEST = "manifest.json"
_NAME = re.compile(r"f(?P<fence>[0-9]{12})-s(?P<step>[0-9]{12})-[0-9a-f]{8}")


@dataclass(frozen=True, slots=True)
class Location:
    """One checkpoint's directory, with what its name says. `directory` ends with a slash."""

    manifest_key: str
    directory: str
    fence: int
    step: int


def job_prefix(tenant_id: str, job_id: str) -> str:
    """What the keys of all checkpoints of a job begin with."""
    return f"checkpoints/{tenant_id}/{job_id}/"


def locate(tenant_id: str, job_id: str, manifest_key: str) -> Location | None:
    """None where the key is not that of a manifest of this job."""
    prefix = job_prefix(tenant_id, job_id)
    name = manifest_key.removeprefix(prefix).removesuffix(f"/{MANIFEST}")
    matched = _NAME.fullmatch(name)
    if matched is None or manifest_key != f"{prefix}{name}/{MANIFEST}":
        return None
    return Location(
        manifest_key=manifest_key,
        directory=f"{prefix}{name}/",
        fence=int(matched["fence"]),
        step=int(matched["step"]),
    )


def mentioned(tenant_id: str, job_id: str, text: str) -> Location | None:
    """The checkpoint of this job that a pod's words name, by its key or its directory's name."""
    matched = _NAME.search(text)
    if matched is None:
        return None
    return locate(tenant_id, job_id, f"{job_prefix(tenant_id, job_id)}{matched[0]}/{MANIFEST}")
