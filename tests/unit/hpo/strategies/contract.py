"""What every sampler and every pruner must do, as checks that fail with AssertionError.

Each check plays studies in simulated worlds; `make` builds the strategies for a world.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from services.hpo.core.space import Space
from services.hpo.core.strategies import Judgement, Verdict
from services.hpo.core.trials import Trial, Trials, TrialState
from tests.unit.hpo.strategies.simulator import Strategies, Study, World

Make = Callable[[World], Strategies]


def decides_the_same_after_every_restart(make: Make, space: Space, world: World) -> None:
    """Strategies that are built again from the rows before each decision, as after a crash."""
    lived = Study(world, space, make).play().decisions
    rebuilt = Study(replace(world, is_crashing=True), space, make).play().decisions
    for place, (one, other) in enumerate(zip(lived, rebuilt, strict=False)):
        assert one == other, f"decision {place} differs: {one} and {other}"
    assert len(lived) == len(rebuilt)


def completes_one_if_none_fails(make: Make, space: Space, world: World) -> None:
    study = Study(replace(world, failing=0.0, missing=0.0), space, make).play()
    assert study.trials.in_state(TrialState.COMPLETED), "a study without a result"


def runs_at_most_so_many_and_ends(make: Make, space: Space, world: World) -> None:
    """More than `max_parallel` never run, none is promoted that does not wait, none is left."""

    class Watched(Trials):
        def put(self, trial: Trial) -> None:
            super().put(trial)
            num_running = len(self.in_state(TrialState.RUNNING))
            assert num_running <= world.max_parallel, f"{num_running} trials run"

    def make_watched(space: Space, goals: Any, group_of: Any) -> Trials:
        return Watched(space, goals, group_of=group_of)

    study = Study(world, space, make, make_watched).play()
    assert 1 <= len(study.trials) <= world.max_trials
    for trial in study.trials:
        assert trial.state.is_final, f"trial {trial.number} is left {trial.state}"


def judges_each_rung_once(make: Make, space: Space, world: World) -> None:
    _, pruner = make(world)
    for number in range(world.max_trials):
        steps = pruner.steps_of(number)
        assert all(low < high for low, high in pairwise((0, *steps, world.max_steps)))
        assert len(steps) <= 64
    study = Study(world, space, make).play()
    judged = Counter(one[1:3] for one in study.decisions if one[0] == "judge")
    assert set(judged.values()) <= {1}
    for _, number, step, judgement in (one for one in study.decisions if one[0] == "judge"):
        assert step in pruner.steps_of(number)
        check_judgement(judgement)


def check_judgement(judgement: Judgement) -> None:
    assert judgement.reason.endswith(".")
    assert judgement.verdict in set(Verdict)
    if judgement.threshold is not None:
        assert np.isfinite(judgement.threshold)
    if judgement.rank is not None:
        assert judgement.num_ranked is not None
        assert 1 <= judgement.rank <= judgement.num_ranked


def decides_by_what_it_saw_in_any_order(make: Make, space: Space, world: World) -> None:
    """The same results that came in another order lead to the same decisions."""
    study = Study(world, space, make).play()
    sampler, pruner = make(world)
    shuffled = Trials(space, (world.goal,), group_of=pruner.group_of)
    for trial in study.trials:
        shuffled.put(Trial(trial.number, trial.point, parent=trial.parent))
    order = np.random.default_rng(world.seed).permutation(
        [(trial.number, place) for trial in study.trials for place in range(len(trial.measured))]
    )
    for number in (int(number) for number, _ in order):
        trial = study.trials[number]
        known = len(shuffled[number].measured) + 1
        shuffled.put(replace(shuffled[number], measured=trial.measured[:known]))
    for trial in reversed(list(study.trials)):
        shuffled.put(trial)
    number = len(study.trials)
    assert sampler.propose(shuffled, number) == sampler.propose(study.trials, number)
    assert pruner.next(shuffled) == pruner.next(study.trials)
    assert pruner.may_propose(shuffled) == pruner.may_propose(study.trials)
    for trial in study.trials:
        for measured in trial.measured:
            judgement = pruner.judge(shuffled, trial.number, measured.step)
            assert judgement == pruner.judge(study.trials, trial.number, measured.step)


def steps_spent(make: Make, space: Space, world: World) -> int:
    """The steps that all trials of a study trained together."""
    return Study(world, space, make).play().num_steps
