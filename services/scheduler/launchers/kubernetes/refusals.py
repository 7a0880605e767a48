"""Why the API server did not create an object: trouble that passes, or a refusal. Pure."""

from collections.abc import Mapping
from typing import Any

from services.scheduler.core.pods import EndKind, EndReason
from services.scheduler.launchers.kubernetes.starts import reason_of

_FULL_QUOTA = "exceeded quota"
# A webhook may answer with any code.
_DENIED = "denied the request"
# The operator's to mend; until then jobs wait.
_OPERATORS = (
    "cannot create resource",
    "is being terminated",
    "error looking up service account",
    "no PriorityClass with name",
    "must specify",  # a quota of a resource that no pod of ours names
)
_INVALID = 422
_FORBIDDEN = 403
_BAD_REQUEST = 400


def why_refused(code: int, status: Mapping[str, Any]) -> EndReason | None:
    """`status`: the body of the answer. None: the same call may succeed later."""
    message = status.get("message") or ""
    if code == _FORBIDDEN and _FULL_QUOTA in message:
        return reason_of(EndKind.DISRUPTED, f"the namespace has no room for the pod: {message}")
    if _DENIED in message:
        return reason_of(EndKind.INVALID, f"the cluster refused the pod: {message}")
    if any(words in message for words in _OPERATORS):
        return None
    if code in (_FORBIDDEN, _INVALID, _BAD_REQUEST):
        return reason_of(EndKind.INVALID, f"the cluster refused the pod: {message}")
    return None
