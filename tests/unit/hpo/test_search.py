"""A search alone: bounds hold, every trial is settled once, and what was stored continues the same.

`World` carries out the actions as the scheduler would, in any order.
"""

import random
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from drivetrain_schemas.pruners import Pruner
from services.hpo import saved
from services.hpo.core import actions, inputs, search
from services.hpo.core.limits import Limits
from services.hpo.core.plan import Plan
from services.hpo.core.samplers import SAMPLERS
from services.hpo.core.search import Search
from services.hpo.core.space import Choice, Condition, Integer, Uniform, make_space
from services.hpo.core.status import Numbers, Open, Phase, Status
from services.hpo.core.strategies import Verdict
from services.hpo.core.trials import Trial, TrialState
from services.hpo.store import StudyRow

SPACE = make_space({"rate": Uniform(0.0, 1.0)})
MAX_STEPS = 27
PRUNERS: dict[str, dict[str, Any] | None] = {
    "none": None,
    "median": {"type": "median", "every_steps": 9, "min_trials": 2},
    "patience": {"type": "patience", "every_steps": 5, "rungs": 2},
    "threshold": {"type": "threshold", "every_steps": 9, "upper": 0.8},
    "halving": {"type": "halving", "min_steps": 3},
    "hyperband": {"type": "hyperband", "min_steps": 3},
    "asha": {"type": "asha", "min_steps": 3},
    "asha, paused": {"type": "asha", "min_steps": 3, "mode": "pause"},
    "pasha": {"type": "pasha", "min_steps": 3},
    "population": {"type": "population", "every_steps": 9, "size": 3},
}


def make_plan(pruner: str = "none", **fields: Any) -> Plan:
    written = PRUNERS[pruner]
    spec = None if written is None else TypeAdapter(Pruner).validate_python(written)
    plan = Plan(SPACE, ("minimize",), pruner=spec, max_steps=MAX_STEPS)
    return replace(plan, **fields)


def make_search(plan: Plan | None = None, num: int = 4, parallel: int = 2, **limits: Any) -> Search:
    return Search(plan or make_plan(), Status(Numbers(num, parallel, Limits(**limits))))


def restored(search: Search) -> Search:
    """The search as a restart finds it: through rows."""
    rows = [saved.trial_row(search, number, None) for number in range(len(search.trials))]
    trials, opened = saved.load_trials(rows)
    study = StudyRow("study", "default", "request", 1, saved.dump_status(search.status))
    return Search(search.plan, saved.load_status(study), trials, opened)


def state_of(search: Search) -> object:
    return search.status, search.opened, list(search.trials)


def of_type(found: Any, kind: type[Any]) -> list[Any]:
    return [one for one in found if isinstance(one, kind)]


@dataclass
class World:
    """Jobs as the scheduler has them: what each will tell next."""

    search: Search
    order: random.Random = field(default_factory=lambda: random.Random(0))
    log: list[inputs.Logged] = field(default_factory=list)
    done: list[actions.Action] = field(default_factory=list)
    rungs: dict[int, list[int]] = field(default_factory=dict)
    wishes: dict[int, str] = field(default_factory=dict)
    waiting: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)
    paused: set[int] = field(default_factory=set)
    late: set[int] = field(default_factory=set)
    fails: frozenset[int] = frozenset()
    restarts: bool = False

    def tell(self, given: inputs.Input) -> tuple[actions.Action, ...]:
        if self.restarts:
            self.search = restored(self.search)
        self.log.append(inputs.load(inputs.dump(given, self.search.most_ended_with(given))))
        decided = self.search.on(*self.log[-1])
        self.done += decided
        for action in decided:
            self._take(action)
        if of_type(decided, actions.ProposeTrial | actions.PromoteTrial):
            assert self.search.num_active <= self.search.status.numbers.max_parallel_trials
        return decided

    def _take(self, action: actions.Action) -> None:
        match action:
            case actions.ProposeTrial(number=number, rungs=rungs, is_imported=False):
                self.rungs[number] = list(rungs)
                self.waiting.add(number)
            case actions.StopTrial(number=number) | actions.DropTrial(number=number):
                self.wishes[number] = "stop"
            case actions.PauseTrial(number=number):
                self.wishes[number] = "pause"
            case actions.CancelTrial(number=number):
                self.wishes[number] = "cancel"
            case actions.PromoteTrial(number=number) | actions.ResumeJob(number=number):
                self.wishes.pop(number, None)
                if number in self.paused:
                    self.paused.remove(number)
                    self.waiting.add(number)

    def step(self) -> bool:
        """One thing happens to one job; False when nothing can."""
        alive = (self.waiting | self.running | self.paused) - self._resting()
        alive = sorted(alive | {number for number in self.late if self.rungs[number]})
        if not alive:
            return False
        number = self.order.choice(alive)
        wish = self.wishes.get(number)
        if wish and self.order.random() < 0.6:
            self._obey(number, wish)
        elif number in self.waiting:
            self.waiting.remove(number)
            self.running.add(number)
            self.tell(inputs.Granted(number))
        elif number in self.running and self.order.random() < 0.1:
            self.late.add(number)
            self._end(number)
        elif number in self.running | self.late and self.rungs[number]:
            step = self.rungs[number].pop(0)
            value = None if number % 7 == 6 else self.value_of(number, step)
            self.tell(inputs.MeasuredAt(number, step, value))
        elif number in self.running:
            self._end(number)
        return True

    def _resting(self) -> set[int]:
        return {number for number in self.paused if number not in self.wishes}

    def _obey(self, number: int, wish: str) -> None:
        del self.wishes[number]
        for place in (self.waiting, self.running, self.paused):
            place.discard(number)
        if wish == "pause":
            self.paused.add(number)
            self.tell(inputs.Paused(number))
        elif wish == "stop":
            self.tell(inputs.Stopped(number))
        else:
            self.tell(inputs.Ended(number, None, "the job was cancelled"))

    def _end(self, number: int) -> None:
        self.running.remove(number)
        self.wishes.pop(number, None)
        if number in self.fails:
            self.tell(inputs.Ended(number, None, "it crashed"))
        else:
            values = (self.value_of(number, MAX_STEPS),) * len(self.search.plan.goals)
            self.tell(inputs.Ended(number, values, is_safe=number % 5 != 4))

    def value_of(self, number: int, step: int) -> float:
        rate = float(self.search.trials[number].point["rate"])
        return (rate - 0.3) ** 2 + 1 / step

    def run(self) -> "World":
        self.tell(inputs.Begin())
        while self.step():
            pass
        return self


def outcome(search: Search) -> Any:
    """How each trial ended."""
    return [(one.number, one.point, one.state, one.values, one.measured) for one in search.trials]


@pytest.mark.parametrize("pruner", PRUNERS)
@pytest.mark.parametrize("sampler", ["random", "tpe"])
@given(seed=st.integers(0, 1000), parallel=st.integers(1, 4))
def test_whatever_the_order_a_study_ends_once_and_settles_every_trial_once(
    pruner: str, sampler: str, seed: int, parallel: int
) -> None:
    plan = make_plan(pruner, sampler=sampler)
    fails = frozenset({seed % 5})
    world = World(make_search(plan, 9, parallel), random.Random(seed), fails=fails).run()

    ends = of_type(world.done, actions.FinishStudy | actions.FailStudy)
    assert len(ends) == 1
    assert {type(one) for one in world.done[world.done.index(ends[0]) + 1 :]} <= {
        actions.JudgeTrial
    }
    proposed = [one.number for one in of_type(world.done, actions.ProposeTrial)]
    assert proposed == list(range(len(proposed)))
    settled = [
        one.number
        for one in of_type(
            world.done,
            actions.CompleteTrial | actions.FailTrial | actions.SettleStopped | actions.DropTrial,
        )
    ]
    assert sorted(settled) == proposed
    assert not world.search.opened
    assert world.search.on(inputs.Ended(0, (0.0,))) == ()


@pytest.mark.parametrize("pruner", PRUNERS)
@given(seed=st.integers(0, 1000))
def test_a_restart_after_each_event_changes_nothing(pruner: str, seed: int) -> None:
    plan = make_plan(pruner, sampler="tpe")
    lived = World(make_search(plan, 9, 3), random.Random(seed)).run()
    again = World(make_search(plan, 9, 3), random.Random(seed), restarts=True).run()
    assert again.done == lived.done
    assert state_of(again.search) == state_of(lived.search)


@pytest.mark.parametrize("pruner", PRUNERS)
@given(seed=st.integers(0, 1000))
def test_the_log_of_a_study_replays_it(pruner: str, seed: int) -> None:
    plan = make_plan(pruner, sampler="tpe")
    lived = World(make_search(plan, 9, 3), random.Random(seed)).run()
    search = make_search(plan, 9, 3)
    replayed = [action for told in lived.log for action in search.on(*told)]
    assert replayed == lived.done
    assert state_of(search) == state_of(lived.search)


COMMANDS = [
    inputs.PauseStudy("finish"),
    inputs.PauseStudy("pause"),
    inputs.ResumeStudy(),
    inputs.StopStudy("enough"),
    inputs.CancelStudy(),
    inputs.ChangeStudy(9, 1, {}),
    inputs.ChangeStudy(12, 3, {"no_improvement": 3}),
    inputs.Spent(99.0, 0.0, 0.0),
]


@given(
    pruner=st.sampled_from(sorted(PRUNERS)),
    seed=st.integers(0, 1000),
    places=st.lists(st.tuples(st.integers(0, 60), st.sampled_from(COMMANDS)), max_size=5),
)
@example(
    "asha",
    0,
    [(0, inputs.PauseStudy(trials="pause")), (1, inputs.PauseStudy(trials="finish"))],
)
@example("asha, paused", 0, [(1, inputs.CancelStudy())])
def test_commands_at_any_time_leave_a_study_that_ends(
    pruner: str, seed: int, places: list[tuple[int, Any]]
) -> None:
    """Pause, resume, stop, cancel and change, between any two events, with restarts."""
    plan = make_plan(pruner, sampler="tpe")
    world = World(make_search(plan, 9, 3, device_hours=50.0), random.Random(seed), restarts=True)
    world.tell(inputs.Begin())
    by_step = {}
    for place, command in places:
        by_step.setdefault(place, command)
    count = 0
    while world.step() or count <= 60:
        if (command := by_step.get(count)) is not None and not world.search.status.is_finished:
            world.tell(command)
        count += 1
        assert count < 2000, "it does not end"
    if not world.search.status.is_finished:
        assert world.search.status.paused is not None
        world.tell(inputs.ResumeStudy())
        while world.step():
            pass
    assert world.search.status.is_finished
    assert not world.search.opened
    settled = [one.state for one in world.search.trials]
    assert all(state.is_final for state in settled)
    counts = world.search.status
    assert counts.num_completed + counts.num_failed + counts.num_stopped == len(settled)


WIDE = make_space(
    {
        "rate": Uniform(0.0, 1.0, num=3),
        "kind": Choice(("a", "b", True)),
        "width": Integer(1, 9, log=True, num=2),
    },
    {"width": (Condition("kind", ("a", True)),)},
)
NOBODY = 999
NOISE = [
    inputs.Begin(),
    inputs.GoOn(),
    inputs.Ended(NOBODY, (0.0,)),
    inputs.Stopped(NOBODY),
    inputs.Paused(NOBODY),
    inputs.Resumed(NOBODY),
    inputs.Granted(NOBODY),
    inputs.MeasuredAt(NOBODY, 9, 0.0),
    inputs.MeasuredAt(0, 2, 0.0),
]
# A pause that comes twice is two: of a trial that was promoted between them somebody else's.
REPEATED = (inputs.Ended, inputs.Stopped, inputs.MeasuredAt)
ENDS = actions.FinishStudy | actions.FailStudy


@given(
    pruner=st.sampled_from(sorted(PRUNERS)),
    sampler=st.sampled_from(sorted(SAMPLERS)),
    goals=st.sampled_from([("minimize",), ("maximize", "minimize")]),
    seed=st.integers(0, 1000),
)
def test_what_comes_twice_or_is_about_nobody_changes_nothing_and_an_extended_study_ends_again(
    pruner: str, sampler: str, goals: tuple[Any, ...], seed: int
) -> None:
    """Of all strategies on a space with conditions, with restarts, failures and unsafe trials."""
    plan = make_plan(pruner, sampler=sampler, goals=goals, space=WIDE)
    order = random.Random(seed)
    fails = frozenset({seed % 5})
    world = World(make_search(plan, 9, 3), order, fails=fails, restarts=True)

    def run() -> None:
        while world.step():
            before, num_done = state_of(world.search), len(world.done)
            last = world.log[-1].given
            noise = [*order.sample(NOISE, 2), *([last] if isinstance(last, REPEATED) else [])]
            for one in noise:
                if isinstance(one, inputs.MeasuredAt) or not world.search.status.is_finished:
                    world.tell(one)
            assert (state_of(world.search), len(world.done)) == (before, num_done), noise

    world.tell(inputs.Begin())
    run()
    assert len(of_type(world.done, ENDS)) == 1
    if world.search.status.failing or not world.search.pruner.may_propose(world.search.trials):
        return
    world.tell(inputs.ChangeStudy(len(world.search.trials) + 3, 2, {}))
    run()
    assert len(of_type(world.done, ENDS)) == 2
    assert all(trial.state.is_final for trial in world.search.trials)
    again = make_search(plan, 9, 3)
    assert [action for told in world.log for action in again.on(*told)] == world.done


def finished(search: Search, *values: float | None) -> list[actions.Action]:
    """Trials end one after the other, each before the next starts."""
    found = list(search.on(inputs.Begin()))
    for number, value in enumerate(values):
        given = None if value is None else (value,)
        found += search.on(inputs.Ended(number, given, "it crashed"))
    return found


def test_a_study_of_which_every_trial_failed_has_failed() -> None:
    assert finished(make_search(num=3, parallel=1), None, None, None)[-1] == actions.FailStudy(
        "all_trials_failed"
    )
    ended = finished(make_search(num=3, parallel=1), None, 0.5, None)[-1]
    assert ended.ended_by == "max_trials"
    assert ended.best.number == 1


def test_so_many_failed_trials_end_a_study_and_stop_the_others() -> None:
    search = make_search(num=9, parallel=3, failed_trials=2)
    search.on(inputs.Begin())
    search.on(inputs.Ended(0, None, "it crashed"))
    decided = search.on(inputs.Ended(1, None, "it crashed"))
    assert [one.number for one in of_type(decided, actions.StopTrial)] == [2, 3]
    search.on(inputs.Stopped(2))
    assert search.on(inputs.Ended(3, (0.5,)))[-1] == actions.FailStudy("failed_trials")


def test_a_paused_trial_does_not_keep_a_study_that_fails_from_ending() -> None:
    """Ten refusals in a row end it while one trial is paused and another is being paused."""
    search = make_search(make_plan("asha, paused", sampler="random"), num=40, parallel=12)
    search.on(inputs.Begin())
    for number in (0, 1):
        search.on(inputs.Granted(number))
        while len(search.trials) < 12 and number == 0:
            search.on(inputs.Granted(len(search.trials) - 1))
        search.on(inputs.MeasuredAt(number, search.rungs_of(number)[0], 1.0 + number))
        assert search.opened[number].phase is Phase.PAUSING
    search.on(inputs.Paused(0))
    for number in range(2, 12):
        search.on(inputs.Ended(number, None, "it was refused", is_refused=True))
    assert search.trials[0].state is TrialState.STOPPED
    assert not search.status.is_finished
    assert search.on(inputs.Paused(1))[-1] == actions.FailStudy("trials_refused")


def test_trials_that_are_refused_again_and_again_fail_the_study() -> None:
    search = make_search(num=100, parallel=1)
    search.on(inputs.Begin())
    for number in range(10):
        decided = search.on(inputs.Ended(number, None, "no pool", is_refused=True))
    assert decided[-1] == actions.FailStudy("trials_refused")


def test_refusals_are_in_a_row_only_without_a_stop_between() -> None:
    search = make_search(num=100, parallel=1)
    search.on(inputs.Begin())
    for number in range(9):
        search.on(inputs.Ended(number, None, "no pool", is_refused=True))
    search.on(inputs.Stopped(9))
    for number in range(10, 19):
        search.on(inputs.Ended(number, None, "no pool", is_refused=True))
    assert search.status.failing is None
    decided = search.on(inputs.Ended(19, None, "no pool", is_refused=True))
    assert decided[-1] == actions.FailStudy("trials_refused")


def test_a_stopped_trial_has_the_reason_of_who_asked_for_it() -> None:
    search = make_search(num=9, parallel=3)
    search.on(inputs.Begin())
    settled = [search.on(inputs.Stopped(0, "by its owner"))[0], search.on(inputs.Stopped(1))[0]]
    search.on(inputs.StopStudy("enough"))
    settled.append(search.on(inputs.Stopped(2, "by its owner"))[0])
    assert settled == [
        actions.SettleStopped(0, "by its owner", False),
        actions.SettleStopped(1, "its job was stopped", False),
        actions.SettleStopped(2, "enough", True),
    ]


def test_a_trial_that_somebody_else_paused_says_so() -> None:
    search = make_search(num=9, parallel=1)
    search.on(inputs.Begin())
    assert search.on(inputs.Paused(0))[0] == actions.SettlePaused(0, "its job was paused")


def test_trials_that_are_paused_with_a_study_that_fails_are_stopped() -> None:
    """Else they would wait for a resume, and the study with them."""
    search = make_search(num=40, parallel=12)
    search.on(inputs.Begin())
    for number in range(12):
        search.on(inputs.Granted(number))
    while len(search.trials) < 12:
        search.on(inputs.Granted(len(search.trials) - 1))
    search.on(inputs.PauseStudy("pause"))
    search.on(inputs.Paused(0))
    for number in range(2, 12):
        decided = search.on(inputs.Ended(number, None, "it was refused", is_refused=True))
    assert [one.number for one in of_type(decided, actions.StopTrial)] == [0, 1]
    search.on(inputs.Stopped(0))
    assert search.on(inputs.Stopped(1))[-1] == actions.FailStudy("trials_refused")


def test_a_study_ends_when_nothing_improves() -> None:
    search = make_search(num=100, parallel=1, no_improvement=3, min_change=0.1)
    decided = finished(search, 1.0, 0.5, 0.45, 0.42, 0.41)
    early = of_type(decided, actions.EndEarly)
    assert [one.ended_by for one in early] == ["no_improvement"]
    assert decided[-1].ended_by == "no_improvement"
    assert decided[-1].best.number == 4, "a small change is still the best"
    assert len(search.trials) == 5


@pytest.mark.parametrize(
    ("spent", "ended_by"),
    [((1.0, 0, 0), "device_hours"), ((0, 2.0, 0), "cost"), ((0, 0, 3.0), "hours")],
)
def test_a_limit_stops_what_runs_and_completes_the_study(
    spent: tuple[float, float, float], ended_by: str
) -> None:
    search = make_search(num=9, parallel=2, device_hours=1.0, cost_usd=2.0, hours=3.0)
    search.on(inputs.Begin())
    assert search.on(inputs.Spent(0.9, 1.9, 2.9)) == ()
    decided = search.on(inputs.Spent(*spent))
    assert [type(one) for one in decided] == [actions.EndEarly] + [actions.StopTrial] * 2
    assert decided[0].ended_by == ended_by
    search.on(inputs.Stopped(0))
    assert search.on(inputs.Ended(1, (0.5,)))[-1].ended_by == ended_by


def test_an_unsafe_trial_completes_and_does_not_win() -> None:
    search = make_search(num=2, parallel=1)
    search.on(inputs.Begin())
    [completed, _] = search.on(inputs.Ended(0, (0.1,), is_safe=False))
    assert (completed.is_best, completed.is_safe) == (False, False)
    assert search.on(inputs.Ended(1, (0.9,)))[-1].best.number == 1


def test_several_objectives_end_with_the_trials_that_none_surpasses() -> None:
    plan = make_plan(goals=("minimize", "maximize"))
    search = make_search(plan, num=4, parallel=1)
    search.on(inputs.Begin())
    for number, values in enumerate([(1.0, 1.0), (0.5, 0.5), (0.6, 0.4), (0.9, 2.0)]):
        decided = search.on(inputs.Ended(number, values))
    assert decided[-1].pareto == (1, 3)


def test_a_learning_sampler_proposes_as_devices_come() -> None:
    """Points decided on later know more, so none is proposed to wait behind others."""
    search = make_search(make_plan(sampler="tpe"), num=20, parallel=8)

    def proposed(given: inputs.Input) -> list[int]:
        return [one.number for one in of_type(search.on(given), actions.ProposeTrial)]

    assert proposed(inputs.Begin()) == [0]
    assert proposed(inputs.Granted(0)) == [1]
    assert proposed(inputs.Granted(1)) == [2, 3]
    assert proposed(inputs.Released(0)) == [], "the pool shrank: more wait than hold devices"
    assert proposed(inputs.Granted(0)) == []
    assert proposed(inputs.Granted(2)) == [4, 5]


def asha(num: int = 9, parallel: int = 3) -> World:
    world = World(make_search(make_plan("asha, paused"), num, parallel))
    world.tell(inputs.Begin())
    return world


def paused_world() -> World:
    """Trial 0 was measured at its first rung and is being paused."""
    world = asha()
    world.tell(inputs.Granted(0))
    decided = world.tell(inputs.MeasuredAt(0, 3, 0.9))
    assert of_type(decided, actions.PauseTrial)
    return world


def test_what_is_measured_while_a_trial_is_being_paused_is_judged_when_it_goes_on() -> None:
    world = paused_world()
    assert world.tell(inputs.MeasuredAt(0, 9, 0.8)) == ()
    world.tell(inputs.Paused(0))
    assert world.search.trials[0].state is TrialState.PAUSED
    assert [one.step for one in world.search.trials[0].measured] == [3]
    world.search = restored(world.search)
    decided = world.tell(inputs.Resumed(0))
    assert [one.step for one in of_type(decided, actions.JudgeTrial)] == [9]


def test_a_job_that_succeeds_before_its_pause_or_stop_counts() -> None:
    world = paused_world()
    [completed, *_] = world.tell(inputs.Ended(0, (0.25,)))
    assert isinstance(completed, actions.CompleteTrial)
    assert world.tell(inputs.Paused(0)) == ()
    assert world.tell(inputs.Stopped(0)) == ()


def test_what_a_trial_measured_before_it_ended_counts_however_late_it_is_told() -> None:
    world = World(make_search(make_plan("median"), num=3, parallel=1))
    world.tell(inputs.Begin())
    for number, value in ((0, 0.1), (1, 0.2)):
        world.tell(inputs.Ended(number, (value,)))
        [told] = world.tell(inputs.MeasuredAt(number, 9, value))
        assert told.judgement.verdict is Verdict.CONTINUE
        assert "ended before" in told.judgement.reason
        assert world.tell(inputs.MeasuredAt(number, 9, 0.3)) == ()
    [judged, stop] = world.tell(inputs.MeasuredAt(2, 9, 0.9))
    assert (judged.judgement.threshold, judged.judgement.rank) == (pytest.approx(0.15), 3)
    assert isinstance(stop, actions.StopTrial)
    world.tell(inputs.Ended(2, (0.9,)))
    assert world.search.status.is_finished
    world.search = restored(world.search)
    [told] = world.tell(inputs.MeasuredAt(1, 18, 0.2))
    assert told.number == 1, "who gives the study more trials compares them with it"


def test_what_is_measured_after_a_stop_changes_nothing() -> None:
    world = paused_world()
    world.tell(inputs.Stopped(0))
    before = state_of(world.search)
    for late in (
        inputs.MeasuredAt(0, 9, 0.1),
        inputs.Paused(0),
        inputs.Resumed(0),
        inputs.Ended(0, (0.1,)),
        inputs.Granted(0),
        inputs.MeasuredAt(77, 3, 0.1),
        inputs.Ended(77, (0.1,)),
        inputs.MeasuredAt(1, 4, 0.1),
    ):
        assert world.tell(late) == ()
    assert state_of(world.search) == before


@pytest.mark.parametrize(
    ("command", "of_paused"),
    [(inputs.StopStudy(), actions.DropTrial), (inputs.CancelStudy(), actions.CancelTrial)],
)
def test_of_many_trials_that_wait_a_few_end_at_once(
    monkeypatch: pytest.MonkeyPatch, command: inputs.Input, of_paused: type[actions.Action]
) -> None:
    """Thousands may wait when their study ends; one transaction may not end them all."""
    monkeypatch.setattr(search, "MAX_ENDED_AT_ONCE", 2)
    trials = [Trial(number, {"rate": 0.1}, TrialState.PAUSED) for number in range(6)]
    trials.append(Trial(6, {"rate": 0.1}))
    opened = {number: Open(Phase.PAUSED) for number in range(6)} | {6: Open()}
    world = World(Search(make_plan("asha, paused"), Status(Numbers(9, 1)), trials, opened))

    def ended(decided: tuple[actions.Action, ...]) -> list[int]:
        world.search = restored(world.search)
        return [one.number for one in of_type(decided, of_paused) if one.number != 6]

    assert ended(world.tell(command)) == [0, 1]
    assert world.search.opened[6].phase is Phase.STOPPING, "what runs is stopped at once"
    assert ended(world.tell(inputs.Granted(6))) == [2], "events of its trials bring few more"
    assert world.search.has_more
    assert ended(world.tell(inputs.GoOn())) == [3, 4]
    assert ended(world.tell(inputs.GoOn())) == [5]
    assert not world.search.has_more


@pytest.mark.parametrize("pruner", ["asha, paused", "halving", "hyperband", "pasha"])
def test_of_many_trials_that_can_not_be_among_the_best_a_few_end_at_once(
    monkeypatch: pytest.MonkeyPatch, pruner: str
) -> None:
    """The log replays exactly."""
    plan = make_plan(pruner)
    monkeypatch.setattr(search, "MAX_ENDED_AT_ONCE", 1)
    world = World(make_search(plan, 40, 4), restarts=True)
    world.tell(inputs.Begin())
    most = 0
    while world.step() or world.search.has_more:
        if world.search.has_more:
            decided = world.tell(inputs.GoOn())
            assert decided, "it goes on"
            most = max(most, len(of_type(decided, actions.DropTrial)))
    assert most == 1
    assert world.search.status.is_finished
    assert all(trial.state.is_final for trial in world.search.trials)
    replayed = make_search(plan, 40, 4)
    again = [action for told in world.log for action in replayed.on(*told)]
    assert again == world.done
    assert state_of(replayed) == state_of(world.search)


def test_a_study_that_is_given_more_trials_while_its_paused_ones_end_goes_on() -> None:
    trials = [Trial(number, {"rate": 0.1}, TrialState.PAUSED) for number in range(3)]
    opened = {number: Open(Phase.PAUSED) for number in range(3)}
    search = Search(make_plan(), Status(Numbers(3, 1)), trials, opened)
    [dropped] = search.on(inputs.GoOn(), 1)
    assert dropped == actions.DropTrial(0, "the study has no further trials")
    search = restored(search)
    assert search.has_more
    [proposed] = search.on(inputs.ChangeStudy(4, 1, {}), 1)
    assert isinstance(proposed, actions.ProposeTrial)
    assert not search.has_more


def test_what_is_measured_of_a_trial_that_is_being_stopped_takes_no_place_in_a_rung() -> None:
    world = asha()
    world.tell(inputs.StopStudy())
    assert world.tell(inputs.MeasuredAt(0, 3, 0.1)) == ()
    assert world.search.trials[0].measured == ()


def test_what_is_measured_of_a_trial_that_is_paused_with_its_study_is_judged_later() -> None:
    """Judged at once, it would be asked to pause a second time, and never tell that it has."""
    world = asha()
    world.tell(inputs.Granted(0))
    world.tell(inputs.PauseStudy("pause"))
    world.tell(inputs.Paused(0))
    assert world.tell(inputs.MeasuredAt(0, 3, 0.9)) == ()
    assert of_type(world.tell(inputs.ResumeStudy()), actions.JudgeTrial)
    assert world.search.opened[0].phase is Phase.PAUSING
    world.tell(inputs.Paused(0))
    assert world.search.trials[0].state is TrialState.PAUSED


def test_late_answers_to_a_fast_pause_and_resume_leave_a_trial_to_its_pruner() -> None:
    """They arrive after it was asked to pause once more: nobody else would ever resume it."""
    world = asha()
    world.tell(inputs.Granted(0))
    world.tell(inputs.PauseStudy("pause"))
    world.tell(inputs.ResumeStudy())
    world.tell(inputs.MeasuredAt(0, 3, 0.9))
    for answer in (inputs.Paused(0), inputs.Resumed(0), inputs.Paused(0)):
        world.tell(answer)
        world.search = restored(world.search)
    assert world.search.opened[0].phase is Phase.PAUSED
    assert world.search.trials[0].state is TrialState.PAUSED


def test_a_trial_that_others_resumed_and_paused_after_a_rung_is_theirs_to_resume() -> None:
    world = paused_world()
    for told in (inputs.Paused(0), inputs.Resumed(0), inputs.MeasuredAt(0, 9, None)):
        world.tell(told)
    world.tell(inputs.Paused(0))
    assert world.search.opened[0].phase is Phase.HELD


def test_a_study_that_is_cancelled_while_a_trial_is_being_paused_cancels_it() -> None:
    world = paused_world()
    decided = world.tell(inputs.CancelStudy())
    assert 0 in [one.number for one in of_type(decided, actions.CancelTrial)]
    world.tell(inputs.Paused(0))
    while world.step():
        pass
    assert isinstance(world.done[-1], actions.FinishCancel)


def test_a_study_that_is_paused_with_its_trials_resumes_them_and_only_them() -> None:
    world = paused_world()
    world.tell(inputs.Granted(1))
    decided = world.tell(inputs.PauseStudy("pause"))
    assert [one.number for one in of_type(decided, actions.PauseTrial)] == [1, 2]
    for number in (0, 1):
        world.tell(inputs.Paused(number))
    phases = {number: one.phase for number, one in world.search.opened.items()}
    assert phases == {0: Phase.PAUSED, 1: Phase.HELD, 2: Phase.HOLDING}
    assert not of_type(world.tell(inputs.Paused(2)), actions.ProposeTrial)
    decided = world.tell(inputs.ResumeStudy())
    assert [one.number for one in of_type(decided, actions.ResumeJob)] == [1, 2]


def test_a_paused_study_proposes_nothing_and_ends_when_all_is_done() -> None:
    search = make_search(num=3, parallel=1)
    search.on(inputs.Begin())
    search.on(inputs.PauseStudy())
    assert of_type(search.on(inputs.Ended(0, (0.5,))), actions.ProposeTrial) == []
    assert of_type(search.on(inputs.ResumeStudy()), actions.ProposeTrial) != []


def test_more_trials_revive_a_completed_study() -> None:
    search = make_search(num=2, parallel=1)
    finished(search, 0.5, 0.4)
    assert search.status.is_finished
    decided = search.on(inputs.ChangeStudy(3, 1, {}))
    assert [one.number for one in of_type(decided, actions.ProposeTrial)] == [2]
    longer = make_search(num=3, parallel=1)
    finished(longer, 0.5, 0.4)
    assert search.trials[2].point == longer.trials[2].point
    assert search.on(inputs.Ended(2, (0.1,)))[-1].best.number == 2


def test_a_grid_ends_with_its_last_point() -> None:
    space = make_space({"a": Choice((1, 2)), "b": Choice(("x", "y", "z"))})
    plan = replace(make_plan(), space=space, sampler="grid")
    search = make_search(plan, num=100, parallel=100)
    assert len(search.on(inputs.Begin())) == 6
    for number in range(6):
        decided = search.on(inputs.Ended(number, (0.5,)))
    assert decided[-1].ended_by == "space_exhausted"


def test_who_asks_gets_a_trial_or_a_reason() -> None:
    search = make_search(make_plan(is_external=True), num=3, parallel=1)
    assert search.on(inputs.Begin()) == ()
    [proposed] = search.on(inputs.Ask("first"))
    assert (proposed.number, proposed.request_id) == (0, "first")
    [refused] = search.on(inputs.Ask("second"))
    assert (refused.reason, len(search.trials)) == ("too_many_running", 1)
    search.on(inputs.Ended(0, (0.5,)))
    search.on(inputs.PauseStudy())
    [refused] = search.on(inputs.Ask("third"))
    assert (refused.reason, "paused" in refused.detail) == ("too_many_running", True)
    search.on(inputs.ResumeStudy())
    for number in (1, 2):
        search.on(inputs.Ask(f"{number}"))
        decided = search.on(inputs.Ended(number, (0.5,)))
    assert isinstance(decided[-1], actions.FinishStudy)


def test_trials_from_elsewhere_are_the_first_ones() -> None:
    search = make_search(num=3, parallel=1)
    trials = (({"rate": 0.5}, (0.4,), True), ({"rate": 0.25}, None, True))
    decided = search.on(*inputs.load(inputs.dump(inputs.Import(trials), 1)))
    assert [type(one) for one in decided] == [
        actions.ProposeTrial,
        actions.CompleteTrial,
        actions.ProposeTrial,
        actions.FailTrial,
        actions.ProposeTrial,
    ]
    assert [one.is_imported for one in of_type(decided, actions.ProposeTrial)] == [
        True,
        True,
        False,
    ]


@pytest.mark.parametrize("pruner", ["halving", "hyperband", "asha, paused", "pasha"])
def test_a_space_with_fewer_points_than_trials_still_has_a_best(pruner: str) -> None:
    """The last trial pauses before it is known that there are no further points."""
    space = make_space({"rate": Choice((0.1, 0.2, 0.3, 0.5, 0.9))})
    plan = make_plan(pruner, sampler="grid", space=space)
    world = World(make_search(plan, num=9, parallel=1)).run()
    assert world.done[-1].ended_by == "space_exhausted"
    assert world.search.status.best is not None


def test_imported_trials_without_improvement_do_not_end_a_study() -> None:
    search = make_search(num=9, parallel=1, no_improvement=2)
    point = {"rate": 0.5}
    tried = [(point, (0.5,), True)] * 4 + [(point, None, True)] * 2
    decided = search.on(inputs.Import(tuple(tried)))
    assert isinstance(decided[-1], actions.ProposeTrial)
    assert search.status.best is not None
    search.on(inputs.Ended(6, (0.6,)))
    assert not search.status.is_ending
    assert search.on(inputs.Ended(7, (0.6,)))[-1].ended_by == "no_improvement"


def test_failures_elsewhere_are_not_those_that_a_study_allows() -> None:
    failed = (({"rate": 0.5}, None, True),) * 3
    search = make_search(num=9, parallel=1, failed_trials=2)
    tolerated = inputs.Import(failed, are_tolerated=True)
    assert isinstance(search.on(*inputs.load(inputs.dump(tolerated, 1)))[-1], actions.ProposeTrial)
    search = restored(search)
    assert isinstance(search.on(inputs.Ended(3, None, "it crashed"))[-1], actions.ProposeTrial)
    assert isinstance(search.on(inputs.Ended(4, None, "it crashed"))[-1], actions.FailStudy)
    counted = make_search(num=9, parallel=1, failed_trials=2)
    told = inputs.load(inputs.dump(replace(tolerated, are_tolerated=False), 1))
    assert isinstance(counted.on(*told)[-1], actions.FailStudy)
