"""Why the API server did not create an object: the job's fault, or somebody's to mend. Pure."""

import re
from collections.abc import Mapping
from typing import Any

from drivetrain_schemas.runs import WaitCause
from services.scheduler.core.pods import EndKind, EndReason
from services.scheduler.core.waits import Wait, wait_of
from services.scheduler.launchers.kubernetes.starts import reason_of

API_SERVER = "API server"
_FULL_QUOTA = "exceeded quota"
# A webhook may answer with any code.
_DENIED = "denied the request"
_NO_WEBHOOK = re.compile(r'failed calling webhook "([^"]*)"')
# The operator's to mend; until then jobs wait. With who says so: what is in parentheses, if any.
_OPERATORS = (
    (re.compile("cannot create resource"), "access rules (RBAC)"),
    (re.compile("is being terminated"), "admission plugin NamespaceLifecycle"),
    (re.compile("error looking up service account"), "admission plugin ServiceAccount"),
    (re.compile("no PriorityClass with name"), "admission plugin Priority"),
    # A quota of a resource that no pod of ours names.
    (re.compile("failed quota: ([^:]*): must specify"), "quota {}"),
    (_NO_WEBHOOK, "webhook {}"),
)
_INVALID = 422
_UNAUTHORIZED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404
_BAD_REQUEST = 400


def is_webhooks(status: Mapping[str, Any]) -> bool:
    """The API server itself is well: a webhook that it asks is not."""
    return _NO_WEBHOOK.search(status.get("message") or "") is not None


def why_refused(code: int, status: Mapping[str, Any]) -> EndReason | Wait | None:
    """`status`: the body of the answer. None: trouble that passes."""
    message = status.get("message") or ""
    if code == _FORBIDDEN and _FULL_QUOTA in message:
        return reason_of(EndKind.DISRUPTED, f"the namespace has no room for the pod: {message}")
    if _DENIED in message:
        return reason_of(EndKind.INVALID, f"the cluster refused the pod: {message}")
    for words, by in _OPERATORS:
        if found := words.search(message):
            return blocked(by.format(*found.groups()), message)
    if code in (_FORBIDDEN, _INVALID, _BAD_REQUEST):
        return reason_of(EndKind.INVALID, f"the cluster refused the pod: {message}")
    if code in (_UNAUTHORIZED, _NOT_FOUND):
        return blocked(API_SERVER, f"{code} {message}")
    return None


def blocked(by: str, message: str) -> Wait:
    return wait_of(WaitCause.REFUSED, by, f"the cluster refuses the pod ({by}): {message}")
