"""What the start of a process does, by how often one ended at its position, and at which step."""

import pytest

from services.runtime.crashes import Start, decide


@pytest.mark.parametrize(
    ("starts", "last_step", "want"),
    [
        (1, None, Start.IN_BATCHES),
        (2, "unknown", Start.IN_BATCHES),
        (2, "handling", Start.IN_BATCHES),
        (3, "unknown", Start.ALONE),
        (3, "reading", Start.ALONE),
        (3, "handling", Start.ALONE),
        (4, "reading", Start.PARK_BATCH),
        (4, "handling", Start.PARK_RECORD),
        (4, "unknown", Start.ALONE),
        (40, "unknown", Start.ALONE),
    ],
)
def test_only_what_a_process_was_seen_to_end_at_is_parked(
    starts: int, last_step: str | None, want: Start
) -> None:
    assert decide(starts, last_step) is want
