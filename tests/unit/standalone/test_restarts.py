"""When an ended child starts again and when the whole gives up."""

import pytest

from services.standalone.core.restarts import (
    ChildExit,
    ExitHistory,
    GiveUp,
    Restart,
    RestartPolicy,
    after_exit,
)

POLICY = RestartPolicy()
UNREADY = ChildExit(was_ready=False, ran_s=1.0)
UNSUPPORTED = ChildExit(was_ready=False, ran_s=1.0, was_supported=False)
QUICK = ChildExit(was_ready=True, ran_s=1.0)
SETTLED = ChildExit(was_ready=True, ran_s=3600.0)


def verdicts(*exits: ChildExit) -> list[Restart | GiveUp]:
    history = ExitHistory()
    found = []
    for ended in exits:
        history, verdict = after_exit(POLICY, history, ended)
        found.append(verdict)
    return found


def test_a_child_that_ran_for_long_starts_again_at_the_first_delay() -> None:
    assert verdicts(SETTLED, SETTLED, SETTLED) == [Restart(0.2)] * 3


def test_a_child_that_keeps_ending_soon_after_readiness_waits_longer_each_time() -> None:
    delays = [verdict.delay_s for verdict in verdicts(*[QUICK] * 8)]  # type: ignore[union-attr]
    assert delays == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_long_run_ends_the_growth_of_the_delay() -> None:
    assert verdicts(QUICK, QUICK, QUICK, SETTLED, QUICK)[3:] == [Restart(0.2), Restart(0.4)]


def test_the_fifth_exit_in_a_row_before_readiness_gives_up() -> None:
    found = verdicts(*[UNREADY] * 5)
    assert [type(verdict) for verdict in found] == [Restart] * 4 + [GiveUp]
    assert found[-1] == GiveUp(num_exits=5)


def test_readiness_in_between_starts_the_count_anew() -> None:
    found = verdicts(*[UNREADY] * 4, QUICK, *[UNREADY] * 4)
    assert GiveUp not in {type(verdict) for verdict in found}


def test_exits_while_a_needed_part_is_away_do_not_count() -> None:
    found = verdicts(*[UNSUPPORTED] * 20, *[UNREADY] * 4)
    assert GiveUp not in {type(verdict) for verdict in found}
    assert isinstance(verdicts(*[UNSUPPORTED] * 20, *[UNREADY] * 5)[-1], GiveUp)


@pytest.mark.parametrize("num_exits", [1, 100, 5000])
def test_the_delay_is_bounded_however_long_a_crash_loop_lasts(num_exits: int) -> None:
    last = verdicts(*[QUICK] * num_exits)[-1]
    assert isinstance(last, Restart)
    assert 0 < last.delay_s <= POLICY.longest_delay_s
