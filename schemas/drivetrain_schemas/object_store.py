"""The marker at the root of an object store, and why a call to a store fails.

Without its marker a store is unavailable, never empty: a lost mount, a moved directory or another
bucket must not look like a store in which nothing was ever written. It is written once, at the
platform's first start (docs/architecture.md, rule 10).
"""

import errno
import secrets
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated

from pydantic import Field, StringConstraints, ValidationError

from drivetrain_schemas.base import UtcTime, Value

MARKER_KEY = ".drivetrain-store"


class StoreFailure(StrEnum):
    """What is wrong with the object store; the names are those of `SaveFailure`."""

    UNAVAILABLE = "store_unavailable"
    READ_ONLY = "store_read_only"
    FULL = "store_full"
    ERROR = "store_error"


class StoreMarker(Value):
    """The content of the marker. `store_id` shows if a store was replaced by another one."""

    format: Annotated[int, Field(ge=1, le=1)] = 1
    store_id: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
    created_at: UtcTime


def new_marker() -> StoreMarker:
    return StoreMarker(store_id=secrets.token_hex(16), created_at=datetime.now(UTC))


def marker_problem(content: bytes | None, store_id: str | None) -> str | None:
    """Why the store is not usable with this marker; None if it is usable.

    `content` is None if there is no marker, `store_id` is None if any store is accepted.
    """
    if content is None:
        return f"it holds no {MARKER_KEY}: it is not mounted, or another one is in its place"
    try:
        marker = StoreMarker.model_validate_json(content)
    except ValidationError:
        return f"its {MARKER_KEY} is not readable"
    if store_id is not None and marker.store_id != store_id:
        return f"it is store {marker.store_id}, and {store_id} is expected"
    return None


def failure_of_errno(number: int | None) -> StoreFailure:
    """The failure of a store in a directory, from an error of the operating system."""
    if number in (errno.ENOSPC, errno.EDQUOT):
        return StoreFailure.FULL
    if number in (errno.EROFS, errno.EACCES, errno.EPERM):
        return StoreFailure.READ_ONLY
    if number in (errno.ENOENT, errno.ESTALE, errno.ENODEV, errno.ENOTCONN, errno.ETIMEDOUT):
        return StoreFailure.UNAVAILABLE
    return StoreFailure.ERROR


def with_fix(problem: str) -> str:
    """The text of a failed request to S3, and where its certificate is refused what to do."""
    if "CERTIFICATE_VERIFY_FAILED" not in problem:
        return problem
    if "has expired" in problem:
        return f"{problem}: renew the certificate of the object store"
    if "not valid for" in problem or "ismatch" in problem:
        return f"{problem}: use a name of its certificate in DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL"
    return f"{problem}: give the CA that signed its certificate as a PEM file in AWS_CA_BUNDLE"


# Nothing about the store: an invalid or expired login, or this machine's clock. All come as a 403.
_ABOUT_THE_CALLER = (
    *("InvalidAccessKeyId", "SignatureDoesNotMatch", "ExpiredToken", "InvalidToken"),
    "RequestTimeTooSkewed",
)


def failure_of_code(code: str, status: int) -> StoreFailure:
    """The failure of an S3 store, from its response."""
    if code in ("NoSuchBucket", "ServiceUnavailable", "SlowDown") or status in (503, 504):
        return StoreFailure.UNAVAILABLE
    if code in ("QuotaExceeded", "XMinioStorageFull", "InsufficientStorage") or status == 507:
        return StoreFailure.FULL
    if code in _ABOUT_THE_CALLER:
        return StoreFailure.ERROR
    if status in (401, 403, 405):
        return StoreFailure.READ_ONLY
    return StoreFailure.ERROR
