"""Which ranks and pods a run can have. What a record says of its rank is a claim of the program,
and each rank has series, windows and alerts of its own: without a bound, a job of one slot could
make as many rows as the largest one.
"""

from drivetrain_schemas.units import MAX_DEVICES

# A slot is for one rank. A program that starts some more of its own is let through.
RANKS_OF_SLOT = 8


def num_ranks(num_slots: int | None) -> int:
    """The most that a run with so many slots can have; None: the slots are not known yet."""
    return MAX_DEVICES if num_slots is None else min(MAX_DEVICES, RANKS_OF_SLOT * num_slots)


def is_pod_of(run_id: str, pod_id: str) -> bool:
    """Whether the run can have a pod of this id."""
    pod_of, _, index = pod_id.rpartition("_")
    return pod_of.removeprefix("pod_") == run_id.removeprefix("run_") and int(index) < MAX_DEVICES
