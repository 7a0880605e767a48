"""How many bytes may be read by when: a rate, with a short burst after a pause."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Pace:
    """`free_at`: when what was taken so far is paid for, on the caller's clock."""

    bytes_per_second: float
    burst_seconds: float = 1.0
    free_at: float = 0.0

    def take(self, num_bytes: int, now: float) -> tuple["Pace", float]:
        """The pace after these bytes, and for how many seconds to wait before they are read."""
        start = max(self.free_at, now - self.burst_seconds)
        after = replace(self, free_at=start + num_bytes / self.bytes_per_second)
        return after, max(0.0, start - now)
