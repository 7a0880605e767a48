"""What this process remembers of each pod: since when it has looked the same, and its stop notice.

A new process starts these times at zero, which only makes its timeouts longer.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from services.scheduler.core.pods import Sight
from services.scheduler.core.waits import Wait
from services.scheduler.launchers.base import Observation


@dataclass(slots=True)
class Seen:
    """The notice is the one that was sent here, never the file in the pod's directory: a program of
    the pod can write there. A restarted scheduler sends it again, which a shim that has it ignores.
    """

    # What it looks like (whether its node answers, too), and since when.
    _sights: dict[str, tuple[tuple[Sight, bool], float]] = field(default_factory=dict)
    _notices: dict[str, tuple[str | None, float]] = field(default_factory=dict)
    # Why a pod could not be created, and since when.
    _blocked: dict[str, tuple[Wait, float]] = field(default_factory=dict)

    def note(self, observations: Mapping[str, Observation], now: float) -> bool:
        """True when a pod looks different than before. Forgets pods that are not in `observed`."""
        before = self._sights
        self._sights = {}
        for pod_id, seen in observations.items():
            last = before.get(pod_id)
            looks = (seen.sight, bool(seen.unreachable))
            is_same = last is not None and last[0] == looks
            self._sights[pod_id] = last if last is not None and is_same else (looks, now)
        self._notices = {
            pod_id: notice for pod_id, notice in self._notices.items() if pod_id in observations
        }
        self._blocked = {
            pod_id: blocked for pod_id, blocked in self._blocked.items() if pod_id in observations
        }
        return {pod_id: sight for pod_id, (sight, _) in before.items()} != {
            pod_id: sight for pod_id, (sight, _) in self._sights.items()
        }

    def restart(self, pod_id: str, now: float) -> None:
        """It was started just now: its time to appear starts again, though it looks the same."""
        if pod_id in self._sights:
            self._sights[pod_id] = (self._sights[pod_id][0], now)

    def resume(self, now: float) -> None:
        """Nothing was seen for a while: that time does not count."""
        self._sights = {pod_id: (sight, now) for pod_id, (sight, _) in self._sights.items()}
        self._blocked = {pod_id: (wait, now) for pod_id, (wait, _) in self._blocked.items()}

    def seconds_in_sight(self, pod_id: str, now: float) -> float:
        return now - self._sights[pod_id][1] if pod_id in self._sights else 0.0

    def block(self, pod_id: str, wait: Wait | None, now: float) -> None:
        """It could not be created; None: it could. The time runs from the first try in a row."""
        if wait is None:
            self._blocked.pop(pod_id, None)
        else:
            _, since = self._blocked.get(pod_id, (wait, now))
            self._blocked[pod_id] = (wait, since)

    def blocked(self) -> Mapping[str, Wait]:
        return {pod_id: wait for pod_id, (wait, _) in self._blocked.items()}

    def seconds_blocked(self, pod_id: str, now: float) -> float:
        return now - self._blocked[pod_id][1] if pod_id in self._blocked else 0.0

    def set_notice(self, pod_id: str, reason: str | None, now: float) -> None:
        """This stop notice was sent to it; None: that failed. Its time runs from the first try."""
        _, since = self._notices.get(pod_id, (None, now))
        self._notices[pod_id] = (reason, since)

    def notice(self, pod_id: str) -> str | None:
        return self._notices[pod_id][0] if pod_id in self._notices else None

    def seconds_since_notice(self, pod_id: str, now: float) -> float:
        return now - self._notices[pod_id][1] if pod_id in self._notices else 0.0
