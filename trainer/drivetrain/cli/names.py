"""From what a person writes to an id: an id, the beginning of one, a name, or `latest`.

A whole id is taken as it is, without a request. A name means the newest with that name; what could
mean several is refused with the choices where the newest would be a guess.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from drivetrain.cli.errors import FieldProblem, InvalidInput, NotFound
from drivetrain.cli.output import Item, text_of, write_note

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway

LATEST = "latest"
MAX_TEXT = 128
_ENDED = frozenset({"succeeded", "failed", "cancelled", "stopped", "rejected", "completed"})


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of thing: its ids, and where its newest is listed ("" where there is no list)."""

    name: str
    prefix: str
    path: str = ""
    field: str = ""


JOB = Kind("job", "job_", "/v1/jobs", "jobs")
STUDY = Kind("study", "study_", "/v1/studies", "studies")
CHECKPOINT = Kind("checkpoint", "ckpt_")


def find_job(
    gateway: "Gateway", text: str, *, to_change: bool = False, also_ended: bool = False
) -> str:
    """The id of the job that `text` means. `to_change`: a guess is refused; `also_ended`: between
    jobs that have ended as well, because the change is of those, too.

    Raises NotFound or InvalidInput.
    """
    return _find(gateway, JOB, text, to_change=to_change, also_ended=also_ended)


def find_study(gateway: "Gateway", text: str, *, to_change: bool = False) -> str:
    """As `find_job`, for a study."""
    return _find(gateway, STUDY, text, to_change=to_change)


def find_checkpoint(gateway: "Gateway", text: str) -> str:
    """The id of a checkpoint from the beginning of it."""
    return _find(gateway, CHECKPOINT, text, to_change=True)


def _find(
    gateway: "Gateway", kind: Kind, text: str, *, to_change: bool, also_ended: bool = False
) -> str:
    if re.fullmatch(f"{kind.prefix}[a-z2-7]{{26}}", text):
        return text
    if text == LATEST and kind.path:
        newest = gateway.get(kind.path, {"limit": 1})[kind.field]
        if not newest:
            raise NotFound(f"there is no {kind.name} yet")
        return str(newest[0][f"{kind.name}_id"])
    found: Sequence[Item] = ()
    if 0 < len(text) <= MAX_TEXT:
        found = gateway.get("/v1/ids", {"kind": kind.name, "text": text})["ids"]
    return _choose(kind, text, found, to_change=to_change, also_ended=also_ended)


def _choose(
    kind: Kind, text: str, found: Sequence[Item], *, to_change: bool, also_ended: bool
) -> str:
    if not found:
        fix = f"see: drivetrain {kind.name} list" if kind.path else ""
        raise NotFound(f"there is no {kind.name} {text!r:.80}", fix=fix)
    if len(found) == 1:
        return str(found[0]["id"])
    if not found[0]["is_name"]:
        raise _ambiguous(kind, text, found, "write more of the id")
    live = [one for one in found if also_ended or one["state"] not in _ENDED]
    if to_change and len(live) > 1:
        raise _ambiguous(kind, text, live, "write its id")
    chosen = live[0] if to_change and live else found[0]
    write_note(f"{text}: {chosen['id']}, the newest of several with this name")
    return str(chosen["id"])


def _ambiguous(kind: Kind, text: str, found: Sequence[Item], fix: str) -> InvalidInput:
    choices = [
        FieldProblem(one["id"], f"{text_of(one['name'])}, {text_of(one['state'])}") for one in found
    ]
    return InvalidInput(
        f"{text!r:.80} may mean several {kind.path[4:] or 'checkpoints'}", fix=fix, problems=choices
    )
