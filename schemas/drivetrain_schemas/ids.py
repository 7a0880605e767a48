"""Every id: a prefix for its kind, and the rule that derives it.

Ids of jobs and studies are derived from the tenant and the request id, so the same request sent
twice is the same job. Ids of what belongs to a job are derived from the job's id.
"""

import base64
import hashlib
from typing import Annotated

from pydantic import StringConstraints

from drivetrain_schemas.text import form

_BODY = "[a-z2-7]{26}"


def _id(prefix: str, more: str = "") -> StringConstraints:
    words = f"an id that begins with {prefix}_, as the platform gave it"
    return form(f"{prefix}_{_BODY}{more}", words)


TenantId = Annotated[
    str,
    form("[a-z0-9][a-z0-9_-]{0,62}", "1 to 63 small letters, digits, _ or -, no - or _ in front"),
]
RequestId = Annotated[
    str,
    form(
        "[!-~]([ -~]{0,126}[!-~])?",
        "1 to 128 printable ASCII characters, no space at either end",
        max_length=128,
    ),
]
JobId = Annotated[str, _id("job")]
RunId = Annotated[str, _id("run", "_[1-9][0-9]{0,5}")]
AllocationId = Annotated[str, _id("alloc", "_[1-9][0-9]{0,5}")]
PodId = Annotated[str, _id("pod", "_[1-9][0-9]{0,5}_[0-9]{1,5}")]
StudyId = Annotated[str, _id("study")]
CheckpointId = Annotated[str, _id("ckpt")]
NodeId = Annotated[
    str, form("[a-z0-9][a-z0-9.-]{0,127}", "1 to 128 small letters, digits, dots or -")
]
ChargeId = Annotated[str, _id("charge")]
DecisionId = Annotated[str, _id("decision")]
SilenceId = Annotated[str, _id("silence")]

DEFAULT_TENANT = "default"


def digest_id(*parts: str) -> str:
    """26 base32 characters of SHA-256 over the parts, joined by NUL."""
    digest = hashlib.sha256("\0".join(parts).encode()).digest()
    return base64.b32encode(digest).decode().lower()[:26]


def job_id_for(tenant_id: str, request_id: str) -> str:
    return f"job_{digest_id(tenant_id, request_id)}"


def study_id_for(tenant_id: str, request_id: str) -> str:
    return f"study_{digest_id(tenant_id, request_id)}"


def run_id_for(job_id: str, attempt: int) -> str:
    return f"run_{job_id.removeprefix('job_')}_{attempt}"


def allocation_id_for(job_id: str, attempt: int) -> str:
    return f"alloc_{job_id.removeprefix('job_')}_{attempt}"


def pod_id_for(job_id: str, attempt: int, index: int) -> str:
    return f"pod_{job_id.removeprefix('job_')}_{attempt}_{index}"


def checkpoint_id_for(manifest_key: str) -> str:
    """`manifest_key` is the manifest's key in the object store, which is written once."""
    return f"ckpt_{digest_id(manifest_key)}"


def charge_id_for(allocation_id: str, price_id: str) -> str:
    """One charge per (allocation, price period)."""
    return f"charge_{digest_id(allocation_id, price_id)}"
