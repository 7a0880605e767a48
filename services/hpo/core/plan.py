"""What a search is asked for, and the strategies that carry it out."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from services.hpo.core.pruners import PRUNERS
from services.hpo.core.pruners.base import Base
from services.hpo.core.ranking import Goal
from services.hpo.core.samplers import SAMPLERS
from services.hpo.core.samplers.auto import NUM_FROM_EARLIER
from services.hpo.core.space import Space
from services.hpo.core.strategies import Pruner, Sampler
from services.hpo.core.trials import EarlierStudy, Trial, Trials

# Their points do not depend on results, so nothing is gained by proposing them later.
_NOT_LEARNING = frozenset({"random", "grid", "sobol"})


@dataclass(frozen=True, slots=True)
class Plan:
    """The request; immutable. `pruner` is its spec, `goals` of all objectives."""

    space: Space
    goals: tuple[Goal, ...]
    sampler: str = "random"
    seed: int = 0
    pruner: Any = None
    max_steps: int = 0
    earlier: tuple[EarlierStudy, ...] = ()
    is_external: bool = False

    @property
    def learns(self) -> bool:
        """Whether decisions depend on results, so that later ones are better."""
        return self.sampler not in _NOT_LEARNING or self.pruner is not None

    def is_slow(self, num_trials: int) -> bool:
        """Whether proposing a point after so many trials may take a tenth of a second, because a
        model is fitted from scratch.
        """
        if self.sampler == "auto":
            begins = bool(self.earlier) and num_trials < NUM_FROM_EARLIER
            return begins or len(self.goals) > 1
        return self.sampler == "gp"


@dataclass(frozen=True, slots=True)
class Strategies:
    """Sampler and pruner of a study with a number of trials, and the index that both read."""

    sampler: Sampler
    pruner: Pruner
    trials: Trials

    @classmethod
    def of(cls, plan: Plan, num_trials: int, known: Iterable[Trial]) -> "Strategies":
        sampler = SAMPLERS[plan.sampler](plan.space, plan.seed, num_trials)
        pruner: Pruner = Base(())
        if plan.pruner is not None:
            make = PRUNERS[type(plan.pruner)]
            pruner = make(plan.pruner, plan.max_steps, num_trials, plan.seed, plan.space)
        trials = Trials(
            plan.space,
            plan.goals,
            seed=plan.seed,
            earlier=plan.earlier,
            group_of=pruner.group_of,
        )
        for trial in known:
            trials.put(trial)
        return cls(sampler, pruner, trials)
