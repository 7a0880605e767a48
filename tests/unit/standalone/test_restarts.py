"""When an ended child starts again and when the platform gives up."""

from dataclasses import replace

import pytest

from services.runtime import service
from services.standalone.core.restarts import (
    EXIT_AT_RECORD,
    EXIT_CONFIGURATION,
    ChildExit,
    ExitHistory,
    GiveUp,
    Restart,
    RestartPolicy,
    after_exit,
)

POLICY = RestartPolicy(knows_exit_codes=True)
UNREADY = ChildExit(was_ready=False, ran_s=1.0)
WRONG_SETTING = replace(UNREADY, code=EXIT_CONFIGURATION)
QUICK = ChildExit(was_ready=True, ran_s=1.0)
SETTLED = ChildExit(was_ready=True, ran_s=3600.0)


def verdicts(*exits: ChildExit, policy: RestartPolicy = POLICY) -> list[Restart | GiveUp]:
    history = ExitHistory()
    found = []
    for ended in exits:
        history, verdict = after_exit(policy, history, ended)
        found.append(verdict)
    return found


def test_a_child_that_ran_for_long_starts_again_at_the_first_delay() -> None:
    assert verdicts(SETTLED, SETTLED, SETTLED) == [Restart(0.2)] * 3


def test_a_child_that_keeps_ending_soon_after_readiness_waits_longer_each_time() -> None:
    delays = [verdict.delay_s for verdict in verdicts(*[QUICK] * 8)]  # type: ignore[union-attr]
    assert delays == [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]


def test_a_long_run_ends_the_growth_of_the_delay() -> None:
    assert verdicts(QUICK, QUICK, QUICK, SETTLED, QUICK)[3:] == [Restart(0.2), Restart(0.4)]


@pytest.mark.parametrize(("ran_s", "delay_s"), [(14.9, 0.4), (15.0, 0.2)])
def test_a_run_is_long_from_15_seconds_on(ran_s: float, delay_s: float) -> None:
    found = verdicts(QUICK, ChildExit(was_ready=True, ran_s=ran_s))
    assert found[-1] == Restart(delay_s)


def test_the_fifth_exit_in_a_row_before_readiness_gives_up() -> None:
    found = verdicts(*[UNREADY] * 5)
    assert [type(verdict) for verdict in found] == [Restart] * 4 + [GiveUp]
    assert found[-1] == GiveUp(num_exits=5)


@pytest.mark.parametrize("ended", [UNREADY, QUICK, WRONG_SETTING])
def test_a_child_that_was_ready_once_is_started_again_for_ever(ended: ChildExit) -> None:
    found = verdicts(QUICK, *[ended] * 500)
    assert {type(verdict) for verdict in found} == {Restart}
    assert found[-1] == Restart(POLICY.longest_delay_s)


def test_a_wrong_setting_gives_up_at_once_because_it_cannot_pass_later() -> None:
    assert verdicts(WRONG_SETTING) == [GiveUp(num_exits=1)]
    foreign = RestartPolicy(knows_exit_codes=False)
    assert verdicts(WRONG_SETTING, policy=foreign) == [Restart(0.2)]


@pytest.mark.parametrize(
    "uncounted",
    [
        pytest.param(replace(UNREADY, was_supported=False), id="a needed part is not ready"),
        pytest.param(replace(UNREADY, had_space=False), id="the disk is full"),
        pytest.param(replace(UNREADY, code=EXIT_AT_RECORD), id="at a known record"),
    ],
)
def test_exits_that_can_pass_later_do_not_count(uncounted: ChildExit) -> None:
    found = verdicts(*[uncounted] * 100, *[UNREADY] * 4)
    assert GiveUp not in {type(verdict) for verdict in found}
    assert isinstance(verdicts(*[uncounted] * 100, *[UNREADY] * 5)[-1], GiveUp)


def test_the_codes_are_those_of_the_runtime() -> None:
    assert (EXIT_AT_RECORD, EXIT_CONFIGURATION) == (
        service.EXIT_AT_RECORD,
        service.EXIT_CONFIGURATION,
    )


@pytest.mark.parametrize("num_exits", [1, 100, 5000])
def test_the_delay_is_bounded_however_long_a_crash_loop_lasts(num_exits: int) -> None:
    last = verdicts(*[QUICK] * num_exits)[-1]
    assert isinstance(last, Restart)
    assert 0 < last.delay_s <= POLICY.longest_delay_s
