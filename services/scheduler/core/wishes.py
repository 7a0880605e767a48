"""What is wanted of a job besides running it: to be cancelled, stopped early, or paused.

`answer` decides on one command about a job that exists. Commands may come in any order and twice:
an end outranks a pause, a cancel outranks a stop, and what is wanted already changes nothing. Where
a run lives, the wish waits for its end; a job without one changes its state at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from drivetrain_schemas.jobs import JobState


class Wish(StrEnum):
    CANCEL = "cancel"
    STOP = "stop"
    PAUSE = "pause"


class Verb(StrEnum):
    """A command about a job that exists."""

    CANCEL = "cancel"
    STOP = "stop"
    PAUSE = "pause"
    RESUME = "resume"


@dataclass(frozen=True, slots=True)
class Accepted:
    """`wish`: what is wanted from now on. `state`: what a job without a run becomes at once."""

    wish: Wish | None
    state: JobState | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    why: str


_ENDING = {Wish.CANCEL: "cancelled", Wish.STOP: "stopped"}
_WITHOUT_A_RUN = (JobState.QUEUED, JobState.PAUSED)
_STATE_OF: Mapping[Wish | None, JobState] = {
    Wish.CANCEL: JobState.CANCELLED,
    Wish.STOP: JobState.STOPPED,
    Wish.PAUSE: JobState.PAUSED,
    None: JobState.QUEUED,
}


def answer(verb: Verb, state: JobState, wish: Wish | None) -> Accepted | Refused | None:
    """None: nothing to do, because it is so already."""
    if state.is_final:
        return Refused(f"the job has finished: {state}")
    if verb in (Verb.PAUSE, Verb.RESUME) and wish in _ENDING:
        return Refused(f"the job is being {_ENDING[wish]}")
    match verb:
        case Verb.CANCEL:
            is_so = wish is Wish.CANCEL
        case Verb.STOP:
            is_so = wish in _ENDING
        case Verb.PAUSE:
            is_so = wish is Wish.PAUSE or state is JobState.PAUSED
        case Verb.RESUME:
            is_so = wish is None and state is not JobState.PAUSED
    if is_so:
        return None
    wanted = None if verb is Verb.RESUME else Wish(verb.value)
    return Accepted(wanted, _STATE_OF[wanted] if state in _WITHOUT_A_RUN else None)
