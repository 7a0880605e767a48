"""Which rows of the outbox may be sent: pure bookkeeping of what is in flight and what is held.

The rows of one key are sent in order: while some are in flight, its other rows wait. A key whose
row was not acknowledged is *held*: after a while it is *probed* by its first row, separately from
the others, so that an unavailable topic or partition does not delay the rest. If a probe is
acknowledged, its key is released and all held keys are due immediately.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import NamedTuple

RETRY_SECONDS = 1.0
MAX_ROWS = 10_000
MAX_BYTES = 16_000_000
MAX_PROBED_KEYS = 100


class Key(NamedTuple):
    """Records of one topic with one key: their order is kept."""

    topic: str
    key: bytes


class Held(NamedTuple):
    """When a held key is tried next (monotonic), and the id of its first row."""

    retry_at: float
    row_id: int


class Flow:
    """Rows in flight by key, and the held keys."""

    def __init__(self) -> None:
        self._in_flight: Counter[Key] = Counter()
        self._num_rows = 0
        self._num_bytes = 0
        self._held: dict[Key, Held] = {}
        self._probed: set[Key] = set()

    @property
    def num_held(self) -> int:
        return len(self._held)

    @property
    def is_idle(self) -> bool:
        return not self._in_flight

    @property
    def num_rows(self) -> int:
        """Rows in flight."""
        return self._num_rows

    def has_room(self) -> bool:
        return self._num_rows < MAX_ROWS and self._num_bytes < MAX_BYTES

    def excluded(self) -> list[Key]:
        """Keys whose rows must wait."""
        return list(self._in_flight.keys() | self._held.keys())

    def due(self, now: float) -> dict[Key, int]:
        """Held keys to be tried again, each with its first row; none while others are tried."""
        if self._probed:
            return {}
        waiting = ((key, it) for key, it in self._held.items() if key not in self._in_flight)
        due = ((key, it.row_id) for key, it in waiting if it.retry_at <= now)
        return dict(islice(due, MAX_PROBED_KEYS))

    def forget(self, keys: Iterable[Key]) -> None:
        """Held keys whose first row is gone: another replica sent it."""
        for key in keys:
            self._held.pop(key, None)

    def send(self, keys: Sequence[Key], num_bytes: int) -> None:
        """One key for each row that is sent."""
        self._in_flight.update(keys)
        self._probed |= self._held.keys() & keys
        self._num_rows += len(keys)
        self._num_bytes += num_bytes

    def settle(self, key: Key, num_bytes: int) -> None:
        """The outcome of a row is recorded, whatever it is."""
        self._in_flight[key] -= 1
        if not self._in_flight[key]:
            del self._in_flight[key]
            self._probed.discard(key)
        self._num_rows -= 1
        self._num_bytes -= num_bytes

    def hold(self, key: Key, row_id: int, now: float) -> bool:
        """After a row whose outcome is unknown. True where the key was not held before."""
        before = self._held.pop(key, None)
        first = row_id if before is None else min(row_id, before.row_id)
        self._held[key] = Held(now + RETRY_SECONDS, first)  # behind those tried longer ago
        return before is None

    def release(self, keys: Iterable[Key], now: float) -> None:
        """These keys were acknowledged after they had been held: the others may succeed now too."""
        passed = [key for key in keys if self._held.pop(key, None) is not None]
        if passed:
            self._held = {key: it._replace(retry_at=now) for key, it in self._held.items()}
