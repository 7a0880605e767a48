"""The contract finds strategies that break it: each is wrong in one way that has been seen."""

import random
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from services.hpo.core.pruners.asha import AshaPause
from services.hpo.core.pruners.base import Base
from services.hpo.core.space import Point
from services.hpo.core.strategies import (
    Drop,
    Fork,
    Judgement,
    Promote,
    Proposal,
    Pruner,
    Sampler,
    Verdict,
)
from services.hpo.core.trials import Trials, TrialState
from tests.unit.hpo.pruners.tables import SPACE
from tests.unit.hpo.strategies import contract
from tests.unit.hpo.strategies.contract import Make
from tests.unit.hpo.strategies.simulator import Drawn, Strategies, World

STEPS = (3, 9, 27)
WORLDS = [World(seed=seed, max_trials=20, late=0.3, preempted=0.3) for seed in range(8)]


class Global(Drawn):
    """Draws from a generator whose state a restart loses."""

    def __init__(self) -> None:
        super().__init__(SPACE, 0)
        self.generator = random.Random(7)

    def propose(self, trials: Trials, number: int) -> Proposal | None:
        return super().propose(trials, self.generator.getrandbits(30))


class Remembering(Drawn):
    """Counts its own proposals instead of the trials."""

    num = 0

    def propose(self, trials: Trials, number: int) -> Proposal | None:
        self.num += 1
        point: Point = {"learning_rate": 1e-4 * self.num, "width": 8, "optimizer": "sgd"}
        return Proposal(point, "")


@dataclass(frozen=True, slots=True)
class PromotesTwice(AshaPause):
    def next(self, trials: Trials) -> Promote | Fork | Drop | None:
        for step in self.steps:
            if len(trials.rung(step).ranked) >= 3:
                return Promote(trials.rung(step).ranked[0][1], "")
        return None


@dataclass(frozen=True, slots=True)
class ForgetsPaused(AshaPause):
    def next(self, trials: Trials) -> Promote | Fork | Drop | None:
        return None


@dataclass(frozen=True, slots=True)
class ByOrderOfArrival(Base):
    """Keeps whoever came first, which a rebuilt index does not know."""

    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        first = next(iter(trials.rung(step).values))
        verdict = Verdict.CONTINUE if number == first else Verdict.STOP
        return Judgement(verdict, "The first one stays.")


@dataclass(frozen=True, slots=True)
class StopsAll(Base):
    def judge_value(self, trials: Trials, number: int, step: int, value: float) -> Judgement:
        return Judgement(Verdict.STOP, "None is good enough.")


@dataclass(frozen=True, slots=True)
class Unbounded(AshaPause):
    """Resumes all that wait as if each were new, and drops none."""

    def next(self, trials: Trials) -> Promote | Fork | Drop | None:
        running = trials.in_state(TrialState.RUNNING)
        return Promote(max(running), "") if running else None


def making(sampler: Callable[[], Sampler], pruner: Callable[[], Pruner]) -> Make:
    def make(world: World) -> Strategies:
        return sampler(), pruner()

    return make


def drawn() -> Sampler:
    return Drawn(SPACE, 0)


def pausing(kind: type[AshaPause] = AshaPause) -> Callable[[], Pruner]:
    return lambda: kind(STEPS, 3, 20)


@pytest.mark.parametrize(
    ("make", "check"),
    [
        (making(Global, pausing()), contract.decides_the_same_after_every_restart),
        (
            making(lambda: Remembering(SPACE, 0), pausing()),
            contract.decides_the_same_after_every_restart,
        ),
        (making(drawn, pausing(PromotesTwice)), contract.runs_at_most_so_many_and_ends),
        (making(drawn, pausing(ForgetsPaused)), contract.runs_at_most_so_many_and_ends),
        (making(drawn, pausing(Unbounded)), contract.runs_at_most_so_many_and_ends),
        (
            making(drawn, lambda: ByOrderOfArrival(STEPS)),
            contract.decides_by_what_it_saw_in_any_order,
        ),
        (
            making(drawn, lambda: ByOrderOfArrival(STEPS)),
            contract.decides_the_same_after_every_restart,
        ),
        (making(drawn, lambda: StopsAll(STEPS)), contract.completes_one_if_none_fails),
        (making(drawn, lambda: Base((9, 3))), contract.judges_each_rung_once),
    ],
)
def test_the_contract_finds_it(make: Make, check: Callable[..., None]) -> None:
    def check_all() -> None:
        for world in WORLDS:
            check(make, SPACE, world)

    with pytest.raises(AssertionError):
        check_all()


def test_the_same_checks_pass_what_is_right() -> None:
    for world in WORLDS[:2]:
        contract.decides_the_same_after_every_restart(making(drawn, pausing()), SPACE, world)
        contract.runs_at_most_so_many_and_ends(making(drawn, pausing()), SPACE, world)
