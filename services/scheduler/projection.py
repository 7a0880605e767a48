"""From rows and observations to the core's views: pure translation, no SQL and no rules."""

from collections.abc import Mapping
from dataclasses import dataclass

from drivetrain_schemas.pods import PodExit
from drivetrain_schemas.runs import RunState
from services.scheduler.core.pods import Exit, PodView, RunView, Sight
from services.scheduler.core.waits import Wait, foremost
from services.scheduler.launchers.base import Observation, PodRef
from services.scheduler.seen import Seen
from services.scheduler.store import JobRow
from services.scheduler.store_pods import PodRow
from services.scheduler.store_runs import RunRow

ABSENT = Observation(Sight.ABSENT)


@dataclass(frozen=True, slots=True)
class LiveRun:
    """A live run with its job and its pods, as recorded."""

    job: JobRow
    run: RunRow
    pods: tuple[PodRow, ...]

    def refs(self) -> tuple[PodRef, ...]:
        """The pods that are not finished."""
        return tuple(self.ref(pod) for pod in self.pods if pod.finished_at is None)

    def ref(self, pod: PodRow) -> PodRef:
        return PodRef(self.run.job_id, self.run.attempt, pod.pod_id)


def is_settled(live: LiveRun, observations: Mapping[str, Observation]) -> bool:
    """It was started, is not stopping, and every pod is alive: `reconcile` needs no action.

    Cheaper than a view, because a round checks every live run.
    """
    if live.run.state not in (RunState.RUNNING, RunState.SUSPECT) or live.run.unreachable:
        return False
    return all(
        pod.finished_at is None and _is_well(observations.get(pod.pod_id, ABSENT))
        for pod in live.pods
    )


def unreachable_nodes(
    live: LiveRun, observations: Mapping[str, Observation]
) -> dict[str, str] | None:
    """The nodes of unfinished pods that do not answer, and why. None before all were observed."""
    pods = [pod for pod in live.pods if pod.finished_at is None]
    if not all(pod.pod_id in observations for pod in pods):
        return None
    looks = [(pod.node_id, observations[pod.pod_id].unreachable) for pod in pods]
    return {node_id: why for node_id, why in looks if why}


def is_to_start(live: LiveRun) -> bool:
    return live.run.state is RunState.STARTING and live.run.stop_reason is None


def wait_of(live: LiveRun, observations: Mapping[str, Observation]) -> Wait | None:
    """Why it does not run yet, where that is known: as announced, before all were observed."""
    pods = [pod.pod_id for pod in live.pods if pod.finished_at is None]
    if not all(pod_id in observations for pod_id in pods):
        return live.run.waiting
    return foremost(observations[pod_id].wait for pod_id in pods)


def _is_well(observed: Observation) -> bool:
    return observed.sight is Sight.ALIVE and not observed.unreachable


def view(live: LiveRun, observations: Mapping[str, Observation], seen: Seen, now: float) -> RunView:
    return RunView(
        run_id=live.run.run_id,
        state=live.run.state,
        pods=tuple(_pod(pod, observations.get(pod.pod_id, ABSENT), seen, now) for pod in live.pods),
        stop_reason=live.run.stop_reason,
        wish=live.job.wish,
        saves_last=live.job.saves_last,
    )


def _pod(pod: PodRow, observed: Observation, seen: Seen, now: float) -> PodView:
    end = pod.exit or observed.exit
    return PodView(
        pod_id=pod.pod_id,
        index=pod.index,
        state=pod.state,
        sight=observed.sight,
        was_alive=pod.was_alive or is_alive(observed),
        launches=pod.launches,
        seconds_in_sight=seen.seconds_in_sight(pod.pod_id, now),
        notice=seen.notice(pod.pod_id),
        seconds_since_notice=seen.seconds_since_notice(pod.pod_id, now),
        exit=None if end is None else _exit(end),
        reason=pod.reason or observed.reason,
        finished_at=pod.finished_at,
        wait=observed.wait,
        seconds_blocked=seen.seconds_blocked(pod.pod_id, now),
    )


def is_alive(observed: Observation) -> bool:
    """Its shim has run: it is alive now, or it has written how it ended."""
    return observed.sight in (Sight.ALIVE, Sight.ENDING, Sight.ENDED)


def _exit(end: PodExit) -> Exit:
    ranks = {rank.rank: rank for rank in end.ranks}
    failed = ranks.get(end.first_failed_rank) if end.first_failed_rank is not None else None
    return Exit(
        outcome=end.outcome,
        ended_at=end.ended_at,
        exit_code=failed.exit_code if failed else None,
        signal=failed.signal if failed else None,
        rank=end.first_failed_rank,
        detail=end.detail,
        last_log=end.last_log,
        failure=end.failure,
    )
