"""How long the oldest record of a partition that is not yet handled has been waiting.

Known from outside, by the ends that were observed: a record waits at least since the first
observation of an end beyond it. No clock of another machine is used, and a quiet topic has no lag.
"""

from collections import deque
from collections.abc import Mapping

from services.runtime.bus import Partition

# With one observation every 5 s: longer waits than 80 minutes are told as 80 minutes.
MAX_OBSERVATIONS = 1000


class Waits:
    """The ends seen of each partition that is behind, with the time of each observation."""

    def __init__(self) -> None:
        self._seen: dict[Partition, deque[tuple[int, float]]] = {}

    def observe(
        self,
        positions: Mapping[Partition, int | None],
        ends: Mapping[Partition, int],
        now: float,
    ) -> float:
        """The longest wait in seconds at the monotonic time `now`; 0 where nothing waits."""
        longest = 0.0
        for partition in self._seen.keys() - positions.keys():
            del self._seen[partition]
        for partition, position in positions.items():
            seen = self._seen.setdefault(partition, deque(maxlen=MAX_OBSERVATIONS))
            end = ends.get(partition, 0)
            if position is not None:
                while seen and seen[0][0] <= position:
                    seen.popleft()
            if end > (position or 0) and (not seen or seen[-1][0] < end):
                seen.append((end, now))
            if seen:
                longest = max(longest, now - seen[0][1])
        return longest
