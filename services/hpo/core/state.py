"""What a search knows, and each change of one trial with the action that carries it out."""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from services.hpo.core.actions import (
    Action,
    CancelTrial,
    DropTrial,
    JudgeTrial,
    PauseTrial,
    ProposeTrial,
    StopTrial,
)
from services.hpo.core.open_trials import OpenTrials
from services.hpo.core.plan import Plan, Strategies
from services.hpo.core.status import Open, Phase, Status
from services.hpo.core.strategies import Pruner, Sampler, Verdict
from services.hpo.core.trials import Measured, Trial, Trials, TrialState


class State:
    """One study. `changed` are the numbers of the trials that the last event changed."""

    def __init__(
        self,
        plan: Plan,
        status: Status,
        trials: Iterable[Trial] = (),
        opened: Mapping[int, Open] | None = None,
    ) -> None:
        self.plan = plan
        self.status = status
        self.opened = OpenTrials(opened or {})
        self.changed: set[int] = set()
        self._actions: list[Action] = []
        self._num_to_end = 0
        self._make_strategies(trials)

    @property
    def is_slow(self) -> bool:
        """Whether a decision may take a tenth of a second."""
        return self.plan.is_slow(len(self.trials))

    @property
    def sampler(self) -> Sampler:
        return self._strategies.sampler

    @property
    def pruner(self) -> Pruner:
        return self._strategies.pruner

    @property
    def trials(self) -> Trials:
        return self._strategies.trials

    @property
    def num_active(self) -> int:
        """Trials that run, or wait for devices; not those that the pruner has paused."""
        return len(self.trials.in_state(TrialState.RUNNING))

    def rungs_of(self, number: int) -> tuple[int, ...]:
        return self.pruner.steps_of(number) if number < len(self.trials) else ()

    def rungs_reached(self, number: int, step: int) -> tuple[int, ...]:
        """The trial's rungs up to this step at which it was not measured yet."""
        opened = self.opened.get(number)
        known = self.trials[number].measured + (opened.late if opened else ())
        last = known[-1].step if known else -1
        return tuple(rung for rung in self.rungs_of(number) if last < rung <= step)

    def _start(self, action: ProposeTrial) -> None:
        self._put(Trial(action.number, action.point, parent=action.parent))
        self._open(action.number, Open())
        self._actions.append(action)

    def _run(self, number: int) -> None:
        """The trial goes on; what was measured while it was being paused is judged now."""
        opened = self.opened[number]
        self._open(number, Open(holds_devices=opened.holds_devices))
        self._put(replace(self.trials[number], state=TrialState.RUNNING))
        for place, measured in enumerate(opened.late):
            self._judge(number, measured)
            if (now := self.opened[number]).phase is not Phase.RUNNING:
                self._open(number, replace(now, late=opened.late[place + 1 :]))
                return

    def _judge(self, number: int, measured: Measured) -> None:
        trial = self.trials[number]
        self._put(replace(trial, measured=(*trial.measured, measured)))
        opened = self.opened[number]
        if opened.is_to_wait:
            opened = replace(opened, reason="")
            self._open(number, opened)
        judgement = self.pruner.judge(self.trials, number, measured.step)
        self._actions.append(JudgeTrial(number, measured.step, measured.value, judgement))
        if judgement.verdict is Verdict.STOP:
            self._open(number, replace(opened, phase=Phase.STOPPING, reason=judgement.reason))
            self._actions.append(StopTrial(number, judgement.reason))
        elif judgement.verdict is Verdict.PAUSE:
            self._open(number, replace(opened, phase=Phase.PAUSING, reason=judgement.reason))
            self._actions.append(PauseTrial(number, judgement.reason))

    def _cancel(self, number: int) -> None:
        opened = replace(self.opened[number], phase=Phase.STOPPING, reason="with its study")
        self._open(number, opened)
        self._actions.append(CancelTrial(number))

    def _drop(self, number: int, reason: str) -> None:
        """A trial that the pruner has paused ends."""
        self._settle(number, TrialState.STOPPED)
        self.status = self.status.with_stopped()
        self._num_to_end -= 1
        self._actions.append(DropTrial(number, reason))

    def _stop_all(self, reason: str) -> None:
        for number in sorted(self.opened.keys() - self.opened.paused):
            opened = self.opened[number]
            if opened.phase is not Phase.STOPPING:
                self._open(number, replace(opened, phase=Phase.STOPPING, reason=reason))
                self._actions.append(StopTrial(number, reason))

    def _settle(
        self,
        number: int,
        state: TrialState,
        values: tuple[float, ...] = (),
        is_safe: bool = True,
    ) -> None:
        del self.opened[number]
        self._put(replace(self.trials[number], state=state, values=values, is_safe=is_safe))

    def _open(self, number: int, opened: Open) -> None:
        self.opened[number] = opened
        self.changed.add(number)

    def _put(self, trial: Trial) -> None:
        self.trials.put(trial)
        self.changed.add(trial.number)

    def _make_strategies(self, trials: Iterable[Trial]) -> None:
        """Sampler, pruner and index; again when the number of trials changes."""
        self._strategies = Strategies.of(self.plan, self.status.num_trials, trials)
