"""When an ended child is started again, after how long, and when the platform gives up.

In: the policy, what is known of the child's past exits, and the exit that just happened. Out: the
new history and a verdict (`Restart` with its delay, or `GiveUp` with the reason). The platform
gives up only during its start: a person is waiting, and a wrong setting does not change by itself.
A child that has been ready once is restarted as long as the platform runs, with growing delays up
to a limit. Before that these exits do not count: while a part that it needs is not ready, on a full
disk, and at a record that it cannot handle (which the runtime finally parks).
"""

from dataclasses import dataclass, replace

EXIT_CONFIGURATION = 2
EXIT_AT_RECORD = 71


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    first_delay_s: float = 0.2
    factor: float = 2.0
    longest_delay_s: float = 10.0
    settled_after_s: float = 15.0
    exits_before_giving_up: int = 5
    knows_exit_codes: bool = False
    """One of our own programs: its exit code gives the reason."""


@dataclass(frozen=True, slots=True)
class ExitHistory:
    was_ever_ready: bool = False
    num_unready: int = 0
    """Exits that count, of a child that was never ready."""
    num_quick_in_a_row: int = 0


@dataclass(frozen=True, slots=True)
class ChildExit:
    was_ready: bool
    ran_s: float
    code: int = 1
    was_supported: bool = True
    """All parts that this one needs were ready when it ended."""
    had_space: bool = True
    """The disk was not full."""


@dataclass(frozen=True, slots=True)
class Restart:
    delay_s: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    num_exits: int


def after_exit(
    policy: RestartPolicy, history: ExitHistory, ended: ChildExit
) -> tuple[ExitHistory, Restart | GiveUp]:
    """Decide what follows the unexpected end of a child."""
    counts = ended.was_supported and ended.had_space and not _is_at_record(policy, ended)
    num_unready = history.num_unready + counts
    is_settled = ended.was_ready and ended.ran_s >= policy.settled_after_s
    num_quick = 1 if is_settled else history.num_quick_in_a_row + 1
    new_history = replace(
        history,
        was_ever_ready=history.was_ever_ready or ended.was_ready,
        num_unready=num_unready,
        num_quick_in_a_row=num_quick,
    )
    is_hopeless = policy.knows_exit_codes and ended.code == EXIT_CONFIGURATION
    if not new_history.was_ever_ready and (
        is_hopeless or num_unready >= policy.exits_before_giving_up
    ):
        return new_history, GiveUp(num_quick)
    # The exponent is bounded so that a long crash loop cannot overflow the float.
    grown = policy.first_delay_s * policy.factor ** min(num_quick - 1, 32)
    return new_history, Restart(min(grown, policy.longest_delay_s))


def _is_at_record(policy: RestartPolicy, ended: ChildExit) -> bool:
    return policy.knows_exit_codes and ended.code == EXIT_AT_RECORD
