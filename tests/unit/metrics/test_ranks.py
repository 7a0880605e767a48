"""Which ranks and pods a run can have."""

import pytest

from drivetrain_schemas.units import MAX_DEVICES
from services.metrics.core.ranks import RANKS_OF_SLOT, is_pod_of, num_ranks


@pytest.mark.parametrize(
    ("num_slots", "num"),
    [
        (None, MAX_DEVICES),
        (1, RANKS_OF_SLOT),
        (2, 2 * RANKS_OF_SLOT),
        (MAX_DEVICES, MAX_DEVICES),
        (MAX_DEVICES // RANKS_OF_SLOT - 1, MAX_DEVICES - RANKS_OF_SLOT),
    ],
)
def test_a_run_has_some_ranks_for_each_slot_and_never_more_than_there_can_be(
    num_slots: int | None, num: int
) -> None:
    assert num_ranks(num_slots) == num


@pytest.mark.parametrize(
    ("pod_id", "is_its_own"),
    [
        ("pod_a_1_0", True),
        (f"pod_a_1_{MAX_DEVICES - 1}", True),
        (f"pod_a_1_{MAX_DEVICES}", False),
        ("pod_a_2_0", False),
        ("pod_b_1_0", False),
    ],
)
def test_a_pod_is_of_the_run_that_its_id_names(pod_id: str, is_its_own: bool) -> None:
    assert is_pod_of("run_a_1", pod_id) == is_its_own
