"""What a study is doing or how it ended, in words and by a tone.

In: the study's state and counts. Out: the word of its label, the state that gives its colour, and a
sentence. A study without any value did not succeed, whatever its search says. Pure.
"""

from dataclasses import dataclass
from typing import Protocol

from services.gateway.core.formats import count


class Told(Protocol):
    """What is read of a study."""

    @property
    def state(self) -> str: ...
    @property
    def is_cancelling(self) -> bool: ...
    @property
    def failure(self) -> str | None: ...
    @property
    def goal(self) -> str | None: ...
    @property
    def metric(self) -> str | None: ...
    @property
    def sampler(self) -> str | None: ...
    @property
    def num_completed(self) -> int: ...
    @property
    def num_failed(self) -> int: ...
    @property
    def num_stopped(self) -> int: ...
    @property
    def ended_by(self) -> str | None: ...
    @property
    def state_reason(self) -> str | None: ...


@dataclass(frozen=True, slots=True)
class Outcome:
    """`colour` is the name of a state (`state-...` and `bar-...` in the style sheet)."""

    word: str
    colour: str
    sentence: str


# Why no further trial was started, where it is not that all had been.
_ENDED_BY = {
    "space_exhausted": "every point was tried",
    "device_hours": "the limit of device-hours was reached",
    "cost": "the limit of its cost was reached",
    "hours": "the limit of its time was reached",
    "no_improvement": "nothing improved any more",
    "stopped": "it was stopped",
}


def num_ended(study: Told) -> int:
    return study.num_completed + study.num_failed + study.num_stopped


def outcome(study: Told) -> Outcome:
    search = f"{study.sampler} search to {study.goal} {study.metric}" if study.metric else "search"
    kinds = (study.num_stopped, "stopped early"), (study.num_failed, "without a value")
    of_them = " and ".join(f"{num} of them {kind}" for num, kind in kinds if num)
    ended = num_ended(study)
    told = f"{count(ended, 'trial')} by {search}{f', {of_them}' if of_them else ''}"
    because = f"; {_ENDED_BY[study.ended_by]}" if study.ended_by in _ENDED_BY else ""
    reason = f": {study.state_reason}" if study.state_reason else ""
    match study.state:
        case "completed" if study.num_completed == 0:
            why = f"all {ended} ended without one" if ended else "none ran"
            return Outcome("no result", "failed", f"No trial has a value: {why}{because}")
        case "completed":
            return Outcome("completed", "succeeded", f"Finished: {told}{because}")
        case "failed":
            return Outcome("failed", "failed", f"The study failed: {study.failure}")
        case "cancelled":
            return Outcome("cancelled", "cancelled", f"Cancelled after {told}")
        case "running" if study.is_cancelling:
            return Outcome("cancelling", "cancelling", "Cancel requested; its trials are stopping")
        case "running":
            return Outcome("running", "running", f"Running: {search}")
        case "paused":
            return Outcome("paused", "paused", f"Paused, no trial is started{reason}")
        case "stopping":
            return Outcome("stopping", "cancelling", f"Ending early{because or reason}")
        case "submitted":
            return Outcome("submitted", "submitted", "The request was sent")
    return Outcome(study.state, study.state, "The request was rejected")
