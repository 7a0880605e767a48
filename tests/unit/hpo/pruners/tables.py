"""A study played by hand: measurements in, verdicts out, without a search around the pruner."""

from dataclasses import replace

from pydantic import TypeAdapter

from drivetrain_schemas.pruners import Pruner as PrunerSpec
from services.hpo.core.pruners import PRUNERS
from services.hpo.core.space import Choice, Integer, Space, Uniform, make_space
from services.hpo.core.strategies import Drop, Fork, Judgement, Promote, Pruner, Verdict
from services.hpo.core.trials import Measured, Trial, Trials, TrialState

SPACE = make_space(
    {
        "learning_rate": Uniform(1e-4, 1e-1, log=True),
        "width": Integer(8, 64),
        "optimizer": Choice(("sgd", "adam")),
    }
)
POINT = {"learning_rate": 0.01, "optimizer": "sgd", "width": 16}
ENDED_BY = {Verdict.STOP: TrialState.STOPPED, Verdict.PAUSE: TrialState.PAUSED}


def make_pruner(
    max_steps: int = 81, max_trials: int = 100, seed: int = 0, space: Space = SPACE, **spec: object
) -> Pruner:
    parsed = TypeAdapter(PrunerSpec).validate_python(spec)
    return PRUNERS[type(parsed)](parsed, max_steps, max_trials, seed, space)


class Table:
    """Verdicts take effect at once. Trials begin when something is first said about them."""

    def __init__(self, pruner: Pruner, goal: str = "minimize") -> None:
        self.pruner = pruner
        self.trials = Trials(SPACE, (goal,), group_of=pruner.group_of)

    def begin(self, up_to: int) -> None:
        while len(self.trials) <= up_to:
            self.trials.put(Trial(len(self.trials), POINT))

    def judge(self, number: int, step: int, value: float | None) -> Judgement:
        self.begin(number)
        trial = self.trials[number]
        assert trial.state is TrialState.RUNNING, f"trial {number} is {trial.state}"
        self.trials.put(replace(trial, measured=(*trial.measured, Measured(step, value))))
        judgement = self.pruner.judge(self.trials, number, step)
        if judgement.verdict is not Verdict.CONTINUE:
            self.end(number, ENDED_BY[judgement.verdict])
        return judgement

    def verdicts(self, step: int, values: dict[int, float | None]) -> dict[int, str]:
        return {
            number: self.judge(number, step, value).verdict.value
            for number, value in values.items()
        }

    def end(self, number: int, state: TrialState, *values: float) -> None:
        self.trials.put(replace(self.trials[number], state=state, values=values))

    def next(self) -> tuple[str, int] | None:
        """What the pruner does next, applied."""
        decision = self.pruner.next(self.trials)
        match decision:
            case Promote(number):
                self.end(number, TrialState.RUNNING)
                return "promote", number
            case Drop(number):
                self.end(number, TrialState.STOPPED)
                return "drop", number
            case Fork(parent, point):
                self.trials.put(Trial(len(self.trials), point, parent=parent))
                return "fork", parent
        return None

    def all_next(self) -> list[tuple[str, int]]:
        decisions = []
        while decision := self.next():
            decisions.append(decision)
        return decisions
