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


@dataclass(frozen=True, slots=True)
class Outcome:
    """`colour` is the name of a state (`state-...` and `bar-...` in the style sheet)."""

    word: str
    colour: str
    sentence: str


def outcome(study: Told) -> Outcome:
    search = f"{study.sampler} search to {study.goal} {study.metric}" if study.metric else "search"
    without = f", {study.num_failed} of them without a value" if study.num_failed else ""
    ended = study.num_completed + study.num_failed
    told = f"{count(ended, 'trial')} by {search}{without}"
    match study.state:
        case "completed" if study.num_completed == 0:
            why = f"all {ended} ended without one" if ended else "none ran"
            return Outcome("no result", "failed", f"No trial has a value: {why}")
        case "completed":
            return Outcome("completed", "succeeded", f"Finished: {told}")
        case "failed":
            return Outcome("failed", "failed", f"The study failed: {study.failure}")
        case "cancelled":
            return Outcome("cancelled", "cancelled", f"Cancelled after {told}")
        case "running" if study.is_cancelling:
            return Outcome("cancelling", "cancelling", "Cancel requested; its trials are stopping")
        case "running":
            return Outcome("running", "running", f"Running: {search}")
        case "submitted":
            return Outcome("submitted", "submitted", "The request was sent")
    return Outcome(study.state, study.state, "The request was rejected")
