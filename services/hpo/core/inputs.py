"""What a search is told: one value per event, complete, so that a log of them replays the search.

`dump` and `load` write and read one as JSON, as `Search.on` takes it.
"""

import json
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

from services.hpo.core.space import Point

TrialsOfPause = Literal["finish", "pause"]


@dataclass(frozen=True, slots=True)
class _OfTrial:
    number: int


@dataclass(frozen=True, slots=True)
class Begin:
    """The study was accepted."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A trial's job ended: with the values of all objectives, or without and a reason.

    `is_refused`: the scheduler did not accept the job. `safety`: the value of the safety metric.
    """

    number: int
    values: tuple[float, ...] | None
    detail: str = ""
    is_refused: bool = False
    is_safe: bool = True
    safety: float | None = None


@dataclass(frozen=True, slots=True)
class Stopped:
    """A trial's job ended early: the search asked for it, or somebody else stopped it."""

    number: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Paused(_OfTrial):
    """A trial's job has a checkpoint and holds no devices."""


@dataclass(frozen=True, slots=True)
class Resumed(_OfTrial):
    """A paused job waits for devices again."""


@dataclass(frozen=True, slots=True)
class Granted(_OfTrial):
    """A trial's job holds devices."""


@dataclass(frozen=True, slots=True)
class Released(_OfTrial):
    """A trial's job holds no devices any more."""


@dataclass(frozen=True, slots=True)
class MeasuredAt:
    """The judged metric of a trial at a rung; None: not logged, or no number."""

    number: int
    step: int
    value: float | None


@dataclass(frozen=True, slots=True)
class Spent:
    """What the study has used so far."""

    device_hours: float
    cost_usd: float
    hours: float


@dataclass(frozen=True, slots=True)
class PauseStudy:
    trials: TrialsOfPause = "finish"


@dataclass(frozen=True, slots=True)
class ResumeStudy:
    pass


@dataclass(frozen=True, slots=True)
class StopStudy:
    reason: str = ""


@dataclass(frozen=True, slots=True)
class CancelStudy:
    """Its running jobs are cancelled."""


@dataclass(frozen=True, slots=True)
class ChangeStudy:
    """The study's numbers from now on; `limits` are `Limits` as a mapping."""

    max_trials: int
    max_parallel_trials: int
    limits: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """Somebody wants to run the next trial."""

    request_id: str


@dataclass(frozen=True, slots=True)
class GoOn:
    """The search has more to do than one event may do at once."""


@dataclass(frozen=True, slots=True)
class Import:
    """Trials that ended elsewhere: point, values (None: failed) and whether they were safe.

    `are_tolerated`: those that failed do not count toward `failed_trials`. `safety` are the trials'
    values of the safety metric.
    """

    trials: tuple[tuple[Point, tuple[float, ...] | None, bool], ...]
    are_tolerated: bool = False
    safety: tuple[float | None, ...] = ()


Input = (
    Begin
    | Ended
    | Stopped
    | Paused
    | Resumed
    | Granted
    | Released
    | MeasuredAt
    | Spent
    | PauseStudy
    | ResumeStudy
    | StopStudy
    | CancelStudy
    | ChangeStudy
    | Ask
    | GoOn
    | Import
)
_BY_NAME: dict[str, type[Any]] = {kind.__name__: kind for kind in Input.__args__}


_FIELDS = {kind: tuple(each.name for each in fields(kind)) for kind in Input.__args__}


class Logged(NamedTuple):
    """What a search was told, and how many paused trials could end with it (see `Search.on`)."""

    given: Input
    most_ended: int


def dump(given: Input, most_ended: int) -> str:
    written = {name: getattr(given, name) for name in _FIELDS[type(given)]}
    return json.dumps([type(given).__name__, written, most_ended], ensure_ascii=False)


def load(text: str) -> Logged:
    name, written, most_ended = json.loads(text)
    return Logged(_input(name, written), most_ended)


def _input(name: str, written: dict[str, Any]) -> Input:
    if name == "Import":
        trials = [
            (point, None if values is None else tuple(values), is_safe)
            for point, values, is_safe in written["trials"]
        ]
        return Import(tuple(trials), written["are_tolerated"], tuple(written["safety"]))
    if written.get("values") is not None:
        written["values"] = tuple(written["values"])
    given: Input = _BY_NAME[name](**written)
    return given
