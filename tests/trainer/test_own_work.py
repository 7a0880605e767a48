"""Ranks that wait for each other take the same time for a step; which one is slow shows anyway."""

import re
from pathlib import Path

import pytest

from tests.trainer.ranks import train

SLOW_SECONDS = 0.1


@pytest.mark.heavy
def test_the_own_work_of_a_rank_does_not_contain_its_wait_for_others(tmp_path: Path) -> None:
    ended = train("slow_rank.py", tmp_path, world_size=2, SLOW_SECONDS=SLOW_SECONDS)
    assert ended.exit_codes == (0, 0), ended.output
    found = re.findall(r"rank (\d): ([\d.]+) of ([\d.]+)", ended.output)
    (fast, fast_step), (slow, slow_step) = (
        (float(work), float(step)) for _, work, step in sorted(found)
    )
    assert min(fast_step, slow_step) > SLOW_SECONDS, "each step takes both the same time"
    # Two batches a step, of which one would be the whole if gradients were exchanged for each.
    assert slow >= 2 * SLOW_SECONDS
    assert fast < slow - SLOW_SECONDS
    assert "not measured" not in ended.output
