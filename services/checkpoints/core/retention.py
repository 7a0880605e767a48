"""What retention deletes: every good checkpoint that no rule keeps.

Kept are the last N, the best, the pinned, and what no policy may delete (docs/architecture.md, rule
9): the two newest, and the two newest of an earlier fence until the newest fence has passed their
step. The last N are counted among all of a job and among those that may lead. Two of those whose
bytes were read are kept, so that newer ones with only verified sizes never replace the last fully
verified ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from drivetrain_schemas.checkpoint_names import MIN_NEWEST, never_deleted
from services.checkpoints.core.catalogue import Checkpoint, Goal, best_first, newest_first


@dataclass(frozen=True, slots=True)
class Policy:
    """The checkpoints that a job wants to keep while it runs."""

    keep_last: int
    keep_best: int
    goal: Goal | None


def expendable(good: Sequence[Checkpoint], policy: Policy) -> tuple[Checkpoint, ...]:
    """What retention deletes, the oldest first."""
    order = newest_first(good)
    kept = {one.name for one in never_deleted(one.order for one in order)}
    keep_last = max(policy.keep_last, MIN_NEWEST)
    for candidates, number in (
        (order, keep_last),
        ([one for one in order if one.may_lead], keep_last),
        ([one for one in order if one.is_read], MIN_NEWEST),
    ):
        kept |= {one.checkpoint_id for one in candidates[:number]}
    kept |= {one.checkpoint_id for one in best_first(good, policy.goal)[: policy.keep_best]}
    return tuple(
        one for one in reversed(order) if one.checkpoint_id not in kept and not one.is_pinned
    )


def reason(policy: Policy) -> str:
    """Why a checkpoint was deleted, for its event."""
    best = f" nor of the best {policy.keep_best}" if policy.goal and policy.keep_best else ""
    return f"none of the last {max(policy.keep_last, MIN_NEWEST)}{best}, not pinned"
