"""Which of a job's checkpoints is the latest, and which are the best.

Only good ones (verified, not rejected since, not being deleted) are considered here. Their order is
highest fence, then step. The latest is the highest one that may lead: a checkpoint recorded after a
higher fence was granted is good, and a resume may use it, but it does not become the head of the
job (docs/architecture.md, rule 4).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from drivetrain_schemas.checkpoint_names import CheckpointOrder

Goal = Literal["minimize", "maximize"]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A good checkpoint. `value` is that of the job's metric, where the manifest holds it.

    `is_read`: its bytes were verified; otherwise the sizes of its shards were, so far.
    """

    checkpoint_id: str
    fence: int
    step: int
    value: float | None = None
    is_pinned: bool = False
    may_lead: bool = True
    is_read: bool = True

    @property
    def order(self) -> CheckpointOrder:
        """Its position among the checkpoints of its job."""
        return CheckpointOrder(self.fence, self.step, self.checkpoint_id)


def may_lead(fence: int, highest_fence: int) -> bool:
    """Whether a checkpoint that is recorded now may become the latest."""
    return fence >= highest_fence


def newest_first(good: Iterable[Checkpoint]) -> list[Checkpoint]:
    return sorted(good, key=lambda one: one.order, reverse=True)


def latest(good: Iterable[Checkpoint]) -> Checkpoint | None:
    """The head of the job."""
    return max((one for one in good if one.may_lead), key=lambda one: one.order, default=None)


def further(good: Iterable[Checkpoint], first: Checkpoint) -> Checkpoint | None:
    """The furthest of earlier runs, where `first`, the first one of its run, is behind it.

    One that was recorded after the run was granted does not count: the run could not know it.
    """
    good = list(good)
    if any(one.fence == first.fence for one in good):
        return None
    known = (one for one in good if one.may_lead and one.fence < first.fence)
    furthest = max(known, key=lambda one: one.step, default=None)
    return furthest if furthest is not None and furthest.step > first.step else None


def best_first(good: Sequence[Checkpoint], goal: Goal | None) -> list[Checkpoint]:
    """Those with a value, the best in front; of equal ones the older, so the best is stable."""
    if goal is None:
        return []
    is_minimized = goal == "minimize"
    valued = [
        (one.value if is_minimized else -one.value, one) for one in good if one.value is not None
    ]
    return [one for _, one in sorted(valued, key=lambda item: (item[0], item[1].order))]
