"""What may go: every good checkpoint that is none of the last N, none of the best, not pinned.

The two newest good ones stay whatever the policy says, among all of a job as among those that may
lead, so that a newest one that turns out damaged has another behind it.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from services.checkpoints.core.catalogue import Checkpoint, Goal, best_first, newest_first

MIN_NEWEST = 2


@dataclass(frozen=True, slots=True)
class Policy:
    """What a job wants kept while it runs."""

    keep_last: int = 3
    keep_best: int = 1
    goal: Goal | None = None


def expendable(good: Sequence[Checkpoint], policy: Policy) -> tuple[Checkpoint, ...]:
    """What retention removes, the oldest first."""
    newest = max(policy.keep_last, MIN_NEWEST)
    order = newest_first(good)
    kept = {one.checkpoint_id for one in order[:newest]}
    kept |= {one.checkpoint_id for one in [one for one in order if one.may_lead][:newest]}
    kept |= {one.checkpoint_id for one in best_first(good, policy.goal)[: policy.keep_best]}
    return tuple(
        one for one in reversed(order) if one.checkpoint_id not in kept and not one.is_pinned
    )


def reason(policy: Policy) -> str:
    """What an event says about a deletion."""
    best = f" nor of the best {policy.keep_best}" if policy.goal and policy.keep_best else ""
    return f"none of the last {max(policy.keep_last, MIN_NEWEST)}{best}, not pinned"
