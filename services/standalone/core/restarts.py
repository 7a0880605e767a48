"""When an ended child is started again, after how long, and when the whole gives up.

In: the policy, what is known of the child's past exits, and the exit that just happened.
Out: the new history and a verdict (`Restart` with its delay, or `GiveUp` with the reason).
A child that was ready and ran for a while starts again at once; one that keeps falling over
waits longer each time. Only exits before readiness, while all it needs was there, count
towards giving up, so that an outage of the broker never ends the platform.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    first_delay_s: float = 0.2
    factor: float = 2.0
    longest_delay_s: float = 10.0
    settled_after_s: float = 15.0
    exits_before_giving_up: int = 5


@dataclass(frozen=True, slots=True)
class ExitHistory:
    num_unready_in_a_row: int = 0
    num_quick_in_a_row: int = 0


@dataclass(frozen=True, slots=True)
class ChildExit:
    was_ready: bool
    ran_s: float
    was_supported: bool = True
    """All parts that this one needs were ready when it ended."""


@dataclass(frozen=True, slots=True)
class Restart:
    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    num_exits: int


def after_exit(
    policy: RestartPolicy, history: ExitHistory, ended: ChildExit
) -> tuple[ExitHistory, Restart | GiveUp]:
    """Decide what follows the end of a child that was not asked to end."""
    if ended.was_ready:
        num_unready = 0
    else:
        num_unready = history.num_unready_in_a_row + (1 if ended.was_supported else 0)
    is_settled = ended.was_ready and ended.ran_s >= policy.settled_after_s
    num_quick = 1 if is_settled else history.num_quick_in_a_row + 1
    new_history = replace(history, num_unready_in_a_row=num_unready, num_quick_in_a_row=num_quick)
    if num_unready >= policy.exits_before_giving_up:
        return new_history, GiveUp(num_unready)
    # The exponent is bounded so that a long crash loop cannot overflow the float.
    grown = policy.first_delay_s * policy.factor ** min(num_quick - 1, 32)
    return new_history, Restart(min(grown, policy.longest_delay_s))
