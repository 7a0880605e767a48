"""A rate limit for bytes, with a short burst after a pause."""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Pace:
    """`free_at`: when the limit allows the next bytes, on the caller's clock."""

    bytes_per_second: float
    burst_seconds: float = 1.0
    free_at: float = 0.0

    def take(self, num_bytes: int, now: float) -> tuple["Pace", float]:
        """The pace after these bytes, and how many seconds to wait before reading them."""
        start = max(self.free_at, now - self.burst_seconds)
        after = replace(self, free_at=start + num_bytes / self.bytes_per_second)
        return after, max(0.0, start - now)
