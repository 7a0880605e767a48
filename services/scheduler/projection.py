"""From rows and observations to the core's views: pure translation, no SQL and no rules.

`Seen` remembers since when each pod has looked the same; a new process starts these clocks at zero,
which only makes its timeouts longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from drivetrain_schemas.pods import PodExit
from drivetrain_schemas.runs import RunState
from services.scheduler.core.pods import Exit, PodView, RunView, Sight
from services.scheduler.launchers.base import Observation, PodRef
from services.scheduler.store import JobRow
from services.scheduler.store_runs import PodRow, RunRow

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


@dataclass(slots=True)
class Seen:
    """Per pod, in this process: since when it has looked the same, and its stop notice.

    The notice is the one that was sent here, never the file in the pod's directory: a program of
    the pod can write there. A restarted scheduler sends it again, which a shim that has it ignores.
    """

    _sights: dict[str, tuple[Sight, float]] = field(default_factory=dict)
    _notices: dict[str, tuple[str | None, float]] = field(default_factory=dict)

    def note(self, observations: Mapping[str, Observation], now: float) -> bool:
        """True when a pod looks different than before. Forgets pods that are not in `observed`."""
        before = self._sights
        self._sights = {}
        for pod_id, seen in observations.items():
            last = before.get(pod_id)
            is_same = last is not None and last[0] is seen.sight
            self._sights[pod_id] = last if last is not None and is_same else (seen.sight, now)
        self._notices = {
            pod_id: notice for pod_id, notice in self._notices.items() if pod_id in observations
        }
        return {pod_id: sight for pod_id, (sight, _) in before.items()} != {
            pod_id: sight for pod_id, (sight, _) in self._sights.items()
        }

    def restart(self, pod_id: str, now: float) -> None:
        """It was started just now: its time to appear starts again, though it looks the same."""
        if pod_id in self._sights:
            self._sights[pod_id] = (self._sights[pod_id][0], now)

    def seconds_in_sight(self, pod_id: str, now: float) -> float:
        return now - self._sights[pod_id][1] if pod_id in self._sights else 0.0

    def set_notice(self, pod_id: str, reason: str | None, now: float) -> None:
        """This stop notice was sent to it; None: that failed. Its time runs from the first try."""
        _, since = self._notices.get(pod_id, (None, now))
        self._notices[pod_id] = (reason, since)

    def notice(self, pod_id: str) -> str | None:
        return self._notices[pod_id][0] if pod_id in self._notices else None

    def seconds_since_notice(self, pod_id: str, now: float) -> float:
        return now - self._notices[pod_id][1] if pod_id in self._notices else 0.0


def is_settled(live: LiveRun, observations: Mapping[str, Observation]) -> bool:
    """It was started, is not stopping, and every pod is alive: `reconcile` needs no action.

    Cheaper than a view, because a round checks every live run.
    """
    return live.run.state in (RunState.RUNNING, RunState.SUSPECT) and all(
        pod.finished_at is None and observations.get(pod.pod_id, ABSENT).sight is Sight.ALIVE
        for pod in live.pods
    )


def view(live: LiveRun, observations: Mapping[str, Observation], seen: Seen, now: float) -> RunView:
    return RunView(
        run_id=live.run.run_id,
        state=live.run.state,
        pods=tuple(_pod(pod, observations.get(pod.pod_id, ABSENT), seen, now) for pod in live.pods),
        stop_reason=live.run.stop_reason,
        is_cancelled=live.job.is_cancelled,
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
        finished_at=pod.finished_at,
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
