"""The next actions for a live run, from what is recorded and what is observed.

`acts` returns what the launcher has to do: launch, notify, kill. `moves` returns which changes of
state are proven. Both are repeated every round and are the same for the same view, so a scheduler
that ended between any two steps continues from there. Heartbeats play no part here: missing ones
kill nothing.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from drivetrain_schemas.runs import RunState, WaitCause
from services.scheduler.core.pods import EndKind, EndReason, PodState, PodView, RunView, Sight
from services.scheduler.core.waits import BLOCKED, Wait
from services.scheduler.core.wishes import Wish

MAX_LAUNCHES = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """Timeouts in seconds. `notice` is the deadline that the shim itself enforces: short where
    nothing is to be saved. `refused`: how long a pod that cannot be created holds its slots."""

    start: float = 30.0
    refused: float = 120.0
    cancel_notice: float = 30.0
    gang_notice: float = 5.0
    notice_margin: float = 10.0

    def notice(self, reason: str, saves_last: bool = True) -> float:
        return self.cancel_notice if saves_last and reason != "gang" else self.gang_notice


@dataclass(frozen=True, slots=True)
class Acts:
    """For the launcher, by pod id. `give_up`: those of `kill` that never started, and why."""

    launch: tuple[str, ...] = ()
    notify: tuple[str, ...] = ()
    kill: tuple[str, ...] = ()
    reason: str = "gang"
    saves_last: bool = True
    give_up: Mapping[str, EndReason] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Moves:
    """Proven changes: every pod was seen alive; the gang broke; all pods are finished."""

    is_started: bool = False
    is_broken: bool = False
    is_finished: bool = False


def acts(run: RunView, limits: Limits) -> Acts:
    reason = stop_reason(run)
    launch: list[str] = []
    notify: list[str] = []
    kill: list[str] = []
    give_up: dict[str, EndReason] = {}
    for pod in run.pods:
        if pod.is_finished:
            continue
        if reason is None and (why := _why_given_up(pod, limits)):
            give_up[pod.pod_id] = why
            kill.append(pod.pod_id)
        elif reason is None and pod.state is PodState.INTENDED and pod.sight is Sight.ABSENT:
            launch.append(pod.pod_id)
        elif _must_die(pod, reason, limits, _saves_last(run)):
            kill.append(pod.pod_id)
        elif reason is not None:
            # A signal makes the shim read its notice, so it is sent once the shim exists.
            if pod.notice is None and pod.sight is Sight.ALIVE:
                notify.append(pod.pod_id)
        elif _start_again(pod, limits):
            launch.append(pod.pod_id)
    stop = reason or "gang"
    return Acts(tuple(launch), tuple(notify), tuple(kill), stop, _saves_last(run), give_up)


def moves(run: RunView) -> Moves:
    is_finished = all(pod.is_finished for pod in run.pods)
    return Moves(
        is_started=run.state is RunState.STARTING and all(pod.was_alive for pod in run.pods),
        is_broken=(
            run.stop_reason is None and not is_finished and any(pod.has_failed for pod in run.pods)
        ),
        is_finished=is_finished,
    )


def stop_reason(run: RunView) -> str | None:
    """Why the live pods must stop; None while they may continue."""
    if run.stop_reason is not None:
        return run.stop_reason
    return "gang" if any(pod.has_failed for pod in run.pods) else None


def _saves_last(run: RunView) -> bool:
    return run.saves_last or run.stop_reason != Wish.STOP


def _why_given_up(pod: PodView, limits: Limits) -> EndReason | None:
    """Why a pod that says what it waits for is no longer waited for."""
    if pod.wait is None:
        return None
    if pod.wait.cause in BLOCKED:
        is_over = pod.seconds_blocked > limits.refused
        return EndReason(EndKind.REFUSED, pod.wait.detail) if is_over else None
    if pod.sight is not Sight.CREATED or not _has_no_time_left(pod, limits):
        return None
    return EndReason(_kind_of(pod.wait), f"pod {pod.index} did not start: {pod.wait.detail}")


def _kind_of(wait: Wait) -> EndKind:
    """The cluster's own to mend, or perhaps the job's."""
    is_of_cluster = wait.cause in (WaitCause.GATED, WaitCause.NOT_SCHEDULED)
    return EndKind.DISRUPTED if is_of_cluster else EndKind.FAILED


def _has_no_time_left(pod: PodView, limits: Limits) -> bool:
    return pod.launches >= MAX_LAUNCHES and pod.seconds_in_sight > limits.start


def _must_die(pod: PodView, reason: str | None, limits: Limits, saves_last: bool) -> bool:
    match pod.sight:
        # There is no shim to end the remaining processes. One that is absent and was to start may
        # have been created by a launch that was not recorded.
        case Sight.DEAD | Sight.ABSENT | Sight.ENDING:
            return True
        case Sight.CREATED:
            if reason is not None:
                return True  # nothing has run that could be saved
            return _has_no_time_left(pod, limits)
        case Sight.ALIVE:
            # The shim enforces the deadline; a shim that does not is killed with its ranks.
            patience = limits.notice(pod.notice or reason or "", saves_last) + limits.notice_margin
            return reason is not None and pod.seconds_since_notice > patience
        case Sight.ENDED:
            return False


def _start_again(pod: PodView, limits: Limits) -> bool:
    if pod.sight is not Sight.CREATED:
        return False
    return pod.state is PodState.INTENDED or pod.seconds_in_sight > limits.start
