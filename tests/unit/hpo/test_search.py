"""A study run by `decide` alone: bounds hold, trials are settled once, order changes nothing."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from services.hpo.core.ranking import Ranked
from services.hpo.core.search import (
    CancelStudy,
    CompleteTrial,
    Ended,
    FailStudy,
    FailTrial,
    FinishStudy,
    Progress,
    ProposeTrial,
    Search,
    decide,
    num_trials,
)
from services.hpo.core.space import Choice, Uniform, make_space

SPACE = make_space({"rate": Uniform(0.0, 1.0)})


def make_search(num: int = 4, parallel: int = 2, **fields: object) -> Search:
    search = Search(SPACE, "random", 0, num, parallel, "minimize")
    return replace(search, **fields)


def run_study(search: Search, order: list[int], values: dict[int, float | None]) -> list[object]:
    """Play a study to its end; `order` says which running trial ends next."""
    decision = decide(search, Progress(), ())
    actions: list[object] = list(decision.actions)
    running = [action.number for action in decision.actions if isinstance(action, ProposeTrial)]
    turns = iter(order)
    while running:
        assert len(running) <= search.max_parallel_trials
        number = running.pop(next(turns) % len(running))
        decision = decide(search, decision.progress, [Ended(number, values[number], "no value")])
        actions += decision.actions
        running += [one.number for one in decision.actions if isinstance(one, ProposeTrial)]
    return actions


def refuse_all(search: Search, but: int | None = None) -> list[object]:
    """Every trial's job is refused, except that the one of this number has a value."""
    decision = decide(search, Progress(), ())
    actions: list[object] = list(decision.actions)
    while running := [one.number for one in decision.actions if isinstance(one, ProposeTrial)]:
        ended = [
            Ended(number, 0.5) if number == but else Ended(number, None, f"no {number}", True)
            for number in running
        ]
        decision = decide(search, decision.progress, ended)
        actions += decision.actions
    return actions


def test_a_study_whose_trials_are_all_refused_fails_with_the_reason() -> None:
    actions = refuse_all(make_search(num=100_000, parallel=1))
    assert actions[-1] == FailStudy(0, 10, "no 9")
    assert sum(isinstance(one, ProposeTrial) for one in actions) == 10


def test_trials_beside_each_other_are_settled_before_the_study_fails() -> None:
    actions = refuse_all(make_search(num=100_000, parallel=4))
    assert actions[-1] == FailStudy(0, 12, "no 11")
    assert sum(isinstance(one, FailTrial) for one in actions) == 12


def test_a_trial_that_runs_ends_the_row_of_refusals() -> None:
    actions = refuse_all(make_search(num=100, parallel=1), but=8)
    assert actions[-1] == FailStudy(1, 18, "no 18")


def test_trials_that_fail_are_not_refused() -> None:
    search = make_search(num=30, parallel=1)
    actions = run_study(search, [0] * 30, dict.fromkeys(range(30)))
    assert isinstance(actions[-1], FinishStudy)


def test_a_study_starts_with_as_many_trials_as_may_run() -> None:
    decision = decide(make_search(num=5, parallel=3), Progress(), ())
    assert [action.number for action in decision.actions] == [0, 1, 2]
    assert decision.progress.num_running == 3


def test_one_end_makes_room_for_one_trial() -> None:
    search = make_search()
    progress = decide(search, Progress(), ()).progress
    decision = decide(search, progress, [Ended(1, 0.5)])
    assert decision.actions[0] == CompleteTrial(1, 0.5, is_best=True)
    assert isinstance(decision.actions[1], ProposeTrial)
    assert decision.actions[1].number == 2
    assert len(decision.actions) == 2


def test_a_failed_trial_makes_room_too_and_is_never_best() -> None:
    search = make_search(num=2, parallel=1)
    progress = decide(search, Progress(), ()).progress
    decision = decide(search, progress, [Ended(0, None, "out of memory")])
    assert decision.actions[0] == FailTrial(0, "out of memory")
    assert decision.progress.best is None
    decision = decide(search, decision.progress, [Ended(1, 3.0)])
    assert decision.actions[-1] == FinishStudy(1, 1, Ranked(1, 3.0))


def test_a_study_without_any_value_ends_without_a_best() -> None:
    search = make_search(num=1)
    progress = decide(search, Progress(), ()).progress
    decision = decide(search, progress, [Ended(0, None, "lost")])
    assert decision.actions == (FailTrial(0, "lost"), FinishStudy(0, 1, None))


def test_deciding_again_does_nothing() -> None:
    search = make_search(num=1)
    first = decide(search, Progress(), ())
    assert decide(search, first.progress, ()).actions == ()
    last = decide(search, first.progress, [Ended(0, 1.0)])
    assert decide(search, last.progress, ()).actions == ()


def test_a_grid_spends_no_more_than_it_has() -> None:
    space = make_space({"a": Choice((1, 2)), "b": Choice(("x", "y", "z"))})
    assert num_trials("grid", space, 100) == 6
    assert num_trials("grid", space, 4) == 4
    assert num_trials("random", space, 100) == 100


@given(
    num=st.integers(1, 12),
    parallel=st.integers(1, 6),
    order=st.lists(st.integers(0, 100), min_size=12, max_size=12),
    values=st.lists(st.none() | st.floats(-1, 1), min_size=12, max_size=12),
)
def test_whatever_the_order_every_trial_is_proposed_and_settled_once(
    num: int, parallel: int, order: list[int], values: list[float | None]
) -> None:
    search = make_search(num, parallel)
    known = dict(enumerate(values))
    actions = run_study(search, order, known)
    in_turn = run_study(search, [0] * 12, known)

    proposed = [action for action in actions if isinstance(action, ProposeTrial)]
    settled = [one.number for one in actions if isinstance(one, CompleteTrial | FailTrial)]
    assert [action.number for action in proposed] == list(range(num))
    assert sorted(settled) == list(range(num))
    assert isinstance(actions[-1], FinishStudy)
    # What is proposed and which trial wins is the same in any order.
    assert proposed == [action for action in in_turn if isinstance(action, ProposeTrial)]
    assert actions[-1] == in_turn[-1]
    bests = [action for action in actions if isinstance(action, CompleteTrial) and action.is_best]
    if actions[-1].best is not None:
        assert actions[-1].best.number == bests[-1].number


@given(st.integers(0, 4), st.integers(1, 3))
def test_a_cancelled_study_proposes_no_more_and_ends_once(num_ended: int, parallel: int) -> None:
    search = make_search(6, parallel)
    decision = decide(search, Progress(), ())
    for number in range(num_ended):
        decision = decide(search, decision.progress, [Ended(number, float(number))])
    decision = decide(search, replace(decision.progress, is_cancelled=True), ())
    actions: list[object] = list(decision.actions)
    for number in range(num_ended, decision.progress.num_proposed):
        assert actions == [], "it ends with its last trial"
        decision = decide(search, decision.progress, [Ended(number, None, "cancelled")])
        actions += [one for one in decision.actions if not isinstance(one, FailTrial)]
    best = Ranked(0, 0.0) if num_ended else None
    assert actions == [CancelStudy(num_ended, decision.progress.num_failed, best)]
