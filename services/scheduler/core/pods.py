"""What the launcher observes of a pod, and what the scheduler has recorded.

`Sight` is what is observed now; `PodState` is what was recorded. A pod is finished when it is ENDED
(its `exit.json` says how) or LOST (its shim ended without writing one); both mean that no process
of it is left.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from drivetrain_schemas.pods import Failure
from drivetrain_schemas.runs import RunState
from services.scheduler.core.waits import Wait
from services.scheduler.core.wishes import Wish


class Sight(StrEnum):
    ABSENT = "absent"  # no directory
    CREATED = "created"  # a directory, but no shim yet
    ALIVE = "alive"
    ENDING = "ending"  # exit.json is there, and so are processes besides the shim
    ENDED = "ended"  # exit.json is there, and no process is left
    DEAD = "dead"  # the shim is gone and has left no exit.json


class PodState(StrEnum):
    INTENDED = "intended"
    LAUNCHED = "launched"
    ENDED = "ended"
    LOST = "lost"


class EndKind(StrEnum):
    """What the end of a pod that the platform ended means for the job."""

    DISRUPTED = "disrupted"  # evicted, preempted, its node is gone, no quota: uses no retry
    FAILED = "failed"  # out of memory, the image cannot be pulled: uses a retry
    INVALID = "invalid"  # the image's name is invalid, a policy refuses it: a retry cannot help
    REFUSED = "refused"  # it could not be created, which the operator must mend: uses no retry


@dataclass(frozen=True, slots=True)
class EndReason:
    """Why the platform ended a pod, or did not start it. `detail`: a sentence for its owner."""

    kind: EndKind
    detail: str


@dataclass(frozen=True, slots=True)
class Exit:
    """How a pod ended, as its shim wrote it. `ended_at` is the shim's claim."""

    outcome: str
    ended_at: datetime
    exit_code: int | None = None
    signal: int | None = None
    rank: int | None = None
    detail: str = ""
    last_log: str = ""
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod as recorded and as observed.

    Seconds count since it was first observed like this. `notice` is the reason of the stop notice
    that the scheduler has sent. `wait`: why it does not run yet; `seconds_blocked`: for how long it
    could not be created.
    """

    pod_id: str
    index: int
    state: PodState
    sight: Sight
    was_alive: bool = False
    launches: int = 0
    seconds_in_sight: float = 0.0
    notice: str | None = None
    seconds_since_notice: float = 0.0
    exit: Exit | None = None
    reason: EndReason | None = None
    finished_at: datetime | None = None
    wait: Wait | None = None
    seconds_blocked: float = 0.0

    @property
    def is_finished(self) -> bool:
        return self.state in (PodState.ENDED, PodState.LOST) or self.sight is Sight.ENDED

    @property
    def has_failed(self) -> bool:
        """True once it is certain that this pod's end fails the gang."""
        if self.exit is not None:
            return self.exit.outcome != "succeeded"
        return self.state is PodState.LOST or self.sight is Sight.DEAD


@dataclass(frozen=True, slots=True)
class RunView:
    """A live run and its pods. `stop_reason` is set once the run is to stop.

    `wish` is what is wanted of its job; `saves_last`: a stop leaves a last checkpoint.
    """

    run_id: str
    state: RunState
    pods: tuple[PodView, ...]
    stop_reason: str | None = None
    wish: Wish | None = None
    saves_last: bool = True
