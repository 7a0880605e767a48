"""The furthest checkpoint of earlier runs, where a new run began behind it."""

from typing import Any

import pytest

from services.checkpoints.core.catalogue import Checkpoint, further


def make(fence: int, step: int, **fields: Any) -> Checkpoint:
    return Checkpoint(f"ckpt_{fence}_{step}", fence, step, **fields)


BEHIND = make(3, 100)


@pytest.mark.parametrize(
    ("good", "want"),
    [
        pytest.param([], None, id="there is no earlier run"),
        pytest.param([make(1, 99), make(2, 100)], None, id="none is further"),
        pytest.param([make(1, 101)], make(1, 101), id="one step further"),
        pytest.param(
            [make(1, 300), make(2, 200)], make(1, 300), id="the furthest step, not the last run"
        ),
        pytest.param([make(2, 200), make(3, 50)], None, id="the run has saved before"),
        pytest.param([make(2, 200), make(4, 300)], make(2, 200), id="a later run does not count"),
        pytest.param(
            [make(1, 200), make(2, 300, may_lead=False)],
            make(1, 200),
            id="what was recorded after the run was granted does not count",
        ),
    ],
)
def test_a_run_that_began_behind_an_earlier_one(
    good: list[Checkpoint], want: Checkpoint | None
) -> None:
    assert further(iter(good), BEHIND) == want
