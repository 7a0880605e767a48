"""A search: events in, actions out.

`Search.on(event)` settles what the event tells and then uses the free places: it drops, promotes or
forks trials where the pruner says so, proposes new ones, and ends the study when nothing is left.
It depends only on the study's plan and the events so far: one that is built from stored trials
continues exactly as the search that lived all along.

Held at all times: numbers are proposed once and in order; never more than `max_parallel_trials`
run; every trial ends once, and so does the study.
"""

from dataclasses import replace
from heapq import nsmallest
from itertools import zip_longest
from sys import maxsize

from services.hpo.core import inputs
from services.hpo.core.actions import (
    Action,
    CompleteTrial,
    EndEarly,
    FailTrial,
    JudgeTrial,
    PauseTrial,
    PromoteTrial,
    ProposeTrial,
    Refuse,
    ResumeJob,
    SettlePaused,
    SettleStopped,
)
from services.hpo.core.ending import counted, end_of, failed_by
from services.hpo.core.limits import Crossed, Limits, crossed, without_improvement
from services.hpo.core.ranking import Ranked, is_better
from services.hpo.core.state import State
from services.hpo.core.status import Numbers, Phase
from services.hpo.core.strategies import Drop, Fork, Promote, Verdict
from services.hpo.core.trials import Measured, Trial, TrialState

_AFTER_THE_END = (inputs.ChangeStudy, inputs.MeasuredAt)
# A study ends by itself: every trial was started, or the space has no more points.
_WITHOUT_TRIALS = ("max_trials", "space_exhausted")
# Of trials that wait and never go on: each makes an event, a command and a row.
MAX_ENDED_AT_ONCE = 200


class Search(State):
    """What follows from each event."""

    def on(self, event: inputs.Input, most_ended: int | None = None) -> tuple[Action, ...]:
        """What follows from the event; nothing, if it is about an unknown trial.

        After its end, a trial still takes values that were measured before; a study takes these
        and a change of its numbers, with which it may go on. `most_ended` bounds how many paused
        trials end (see `most_ended_with`); None: all that are to end.
        """
        self._actions, self.changed = [], set()
        if self.status.is_finished and not isinstance(event, _AFTER_THE_END):
            return ()
        self._num_to_end = maxsize if most_ended is None else most_ended
        self._take(event)
        self._advance()
        return tuple(self._actions)

    @property
    def has_more(self) -> bool:
        """Whether paused trials are left that end with the next `GoOn`."""
        if self.status.is_ending:
            return bool(self.opened.paused)
        return not self.status.paused and isinstance(self.pruner.next(self.trials), Drop)

    @property
    def is_ending_early(self) -> bool:
        """Whether its running trials are being stopped: more of them to start changes nothing."""
        status = self.status
        return not status.is_finished and status.ending not in (None, *_WITHOUT_TRIALS)

    def most_ended_with(self, event: inputs.Input) -> int:
        """How many paused trials may end with this event; the others end with later `GoOn`s."""
        ends_many = isinstance(event, inputs.GoOn) or not self.has_more
        return MAX_ENDED_AT_ONCE if ends_many else 1

    # What an event tells.

    def _take(self, event: inputs.Input) -> None:
        match event:
            case inputs.Ended():
                self._on_ended(event)
            case inputs.Stopped():
                self._on_stopped(event)
            case inputs.Paused():
                self._on_paused(event.number)
            case inputs.Resumed():
                self._on_resumed(event.number)
            case inputs.Granted() | inputs.Released():
                if (opened := self.opened.get(event.number)) is not None:
                    holds = isinstance(event, inputs.Granted)
                    self._open(event.number, replace(opened, holds_devices=holds))
            case inputs.MeasuredAt():
                self._on_measured(event)
            case inputs.Spent():
                self._end_early(crossed(self.status.numbers.limits, event))
            case inputs.PauseStudy():
                self._on_pause(event.trials)
            case inputs.ResumeStudy():
                self._on_resume()
            case inputs.StopStudy():
                self._end_early(Crossed("stopped", event.reason or "its owner stopped it"))
            case inputs.CancelStudy():
                self._on_cancel()
            case inputs.ChangeStudy():
                self._on_change(event)
            case inputs.Ask():
                self._on_ask(event.request_id)
            case inputs.Import():
                self._on_import(event)
            case inputs.Begin() | inputs.GoOn():
                pass

    def _on_ended(self, event: inputs.Ended) -> None:
        if event.number not in self.opened:
            return
        self._record_end(event)
        self._count_since_best()
        self._check_failures()

    def _record_end(self, event: inputs.Ended) -> None:
        if event.values is None:
            self.status = self.status.with_failed(is_refused=event.is_refused)
            self._settle(event.number, TrialState.FAILED)
            self._actions.append(FailTrial(event.number, event.detail))
        else:
            better = self._rank(event)
            self._settle(event.number, TrialState.COMPLETED, event.values, event.is_safe)
            completed = CompleteTrial(
                event.number, event.values, better, event.is_safe, event.safety
            )
            self._actions.append(completed)

    def _rank(self, event: inputs.Ended) -> bool:
        assert event.values is not None
        ranked = Ranked(event.number, event.values[0])
        better = event.is_safe and is_better(self.plan.goals[0], ranked, self.status.best)
        self.status = self.status.with_completed(ranked if better else None)
        return better

    def _on_stopped(self, event: inputs.Stopped) -> None:
        opened = self.opened.get(event.number)
        if opened is None:
            return
        self._settle(event.number, TrialState.STOPPED)
        self.status = replace(self.status.with_stopped(), num_refused_in_row=0)
        is_asked = opened.phase is Phase.STOPPING
        reason = (opened.reason if is_asked else event.reason) or "its job was stopped"
        self._actions.append(SettleStopped(event.number, reason, is_asked))
        self._count_since_best()

    def _on_paused(self, number: int) -> None:
        opened = self.opened.get(number)
        if opened is None or opened.phase is Phase.STOPPING:
            return
        if opened.phase is Phase.PAUSING or opened.is_to_wait:
            self._open(number, replace(opened, phase=Phase.PAUSED, holds_devices=False))
            self._put(replace(self.trials[number], state=TrialState.PAUSED))
        elif opened.phase in (Phase.RUNNING, Phase.HOLDING):
            self._open(number, replace(opened, phase=Phase.HELD, holds_devices=False))
        else:
            return
        self._actions.append(SettlePaused(number, opened.reason or "its job was paused"))

    def _on_resumed(self, number: int) -> None:
        """Somebody else resumed the job: our own resumes change the phase when they are sent."""
        opened = self.opened.get(number)
        if opened is None or opened.phase not in (Phase.PAUSED, Phase.HELD):
            return
        self._actions.append(PromoteTrial(number, "its job was resumed", is_resumed=True))
        self._run(number)
        # It may be the answer to an earlier resume of ours, with the pause of its pruner to come.
        if opened.phase is Phase.PAUSED and self.opened[number].phase is Phase.RUNNING:
            self._open(number, replace(self.opened[number], reason=opened.reason))

    def _on_measured(self, event: inputs.MeasuredAt) -> None:
        if event.step not in self.rungs_of(event.number):
            return
        trial, opened = self.trials[event.number], self.opened.get(event.number)
        measured = Measured(event.step, event.value)
        known = trial.measured + (opened.late if opened else ())
        if known and known[-1].step >= event.step:
            return
        # One that was stopped, or is being, takes no place in a rung at which it is not judged.
        if trial.state is TrialState.STOPPED or (opened and opened.phase is Phase.STOPPING):
            return
        if opened is None:
            self._rank_late(trial, measured)
        elif opened.phase in (Phase.PAUSING, Phase.PAUSED, Phase.HELD):
            self._open(event.number, replace(opened, late=(*opened.late, measured)))
        else:
            self._judge(event.number, measured)

    def _rank_late(self, trial: Trial, measured: Measured) -> None:
        """The trial ended before this was known: others at the rung are compared with it."""
        self._put(replace(trial, measured=(*trial.measured, measured)))
        judgement = self.pruner.judge(self.trials, trial.number, measured.step)
        reason = f"{judgement.reason} The trial has ended before this was known."
        judgement = replace(judgement, verdict=Verdict.CONTINUE, reason=reason)
        self._actions.append(JudgeTrial(trial.number, measured.step, measured.value, judgement))

    def _on_pause(self, trials: inputs.TrialsOfPause) -> None:
        if trials == "finish":
            # Trials that were paused with the study stay so: a resume has to know of them.
            self.status = replace(self.status, paused=self.status.paused or trials)
            return
        self.status = replace(self.status, paused=trials)
        for number, opened in sorted(self.opened.items()):
            if opened.phase is Phase.RUNNING:
                self._open(number, replace(opened, phase=Phase.HOLDING, reason="with its study"))
                self._actions.append(PauseTrial(number, "its study was paused"))

    def _on_resume(self) -> None:
        was = self.status.paused
        self.status = replace(self.status, paused=None)
        for number, opened in sorted(self.opened.items()):
            if was == "pause" and opened.phase in (Phase.HOLDING, Phase.HELD):
                self._actions.append(ResumeJob(number))
                self._run(number)

    def _on_cancel(self) -> None:
        self.status = replace(self.status, is_cancelled=True)
        if self.plan.is_external:
            # There are no jobs to cancel, and whoever runs the trials may be gone.
            for number in sorted(self.opened):
                self._on_ended(inputs.Ended(number, None, "its study was cancelled"))
        for number in sorted(self.opened.keys() - self.opened.paused):
            self._cancel(number)

    def _on_change(self, event: inputs.ChangeStudy) -> None:
        limits = Limits(**event.limits)
        numbers = Numbers(event.max_trials, event.max_parallel_trials, limits)
        is_longer = event.max_trials != self.status.numbers.max_trials
        self.status = replace(self.status, numbers=numbers)
        if self.status.is_finished:
            # What ended it may not hold any more; if it does, it ends it again.
            self.status = replace(
                self.status, is_finished=False, ending=None, failing=None, num_since_best=0
            )
        elif self.status.ending in _WITHOUT_TRIALS:
            self.status = replace(self.status, ending=None)
        if is_longer:
            self.status = replace(self.status, num_points=None)
            self._make_strategies(list(self.trials))

    def _on_ask(self, request_id: str) -> None:
        most = self.status.numbers.max_parallel_trials
        if self.num_active >= most:
            detail = f"{self.num_active} trials run; max_parallel_trials is {most}"
            self._actions.append(Refuse("too_many_running", detail))
        elif self.status.paused is not None:
            # Not `no_further_point`, after which a caller does not ask again.
            detail = "the study is paused: ask again when it is resumed"
            self._actions.append(Refuse("too_many_running", detail))
        elif not self._propose(request_id):
            self._actions.append(Refuse("no_further_point", "the study starts no further trials"))

    def _on_import(self, event: inputs.Import) -> None:
        for (point, values, is_safe), safety in zip_longest(event.trials, event.safety):
            number = len(self.trials)
            self._start(ProposeTrial(number, point, "from elsewhere", is_imported=True))
            detail = "" if values else "it has no values"
            ended = inputs.Ended(number, values, detail, is_safe=is_safe, safety=safety)
            self._record_end(ended)
        if event.are_tolerated:
            self.status = replace(self.status, num_tolerated=self.status.num_failed)
        # The study's own trials are to improve on these; theirs do not count as without one.
        if (best := self.status.best) is not None:
            self.status = replace(self.status, best_counted=self.trials.loss_of(best.value))
        self._check_failures()

    # What follows.

    def _advance(self) -> None:
        if self.status.is_ending:
            self._end_paused()
        elif self.status.paused is None:
            self._use_places()
        if not self.opened:
            self._finish()

    def _use_places(self) -> None:
        while (better := self.pruner.next(self.trials)) is not None:
            if isinstance(better, Drop):
                if self._num_to_end <= 0:
                    return
                self._drop(better.number, better.why)
            elif not self._has_place():
                return
            elif isinstance(better, Promote):
                self._actions.append(PromoteTrial(better.number, better.why))
                self._run(better.number)
            elif len(self.trials) >= self.status.num_trials:
                break
            else:
                self._start(self._forked(better))
        if self.plan.is_external:
            return
        num_points = self.status.num_points
        while self._has_place() and self._propose():
            pass
        if self.status.num_points != num_points:
            # No further trials follow, so the pruner may promote paused ones.
            self._use_places()
        elif self.num_active == 0 and self.opened:
            ended_by = self.status.without_trials
            self.status = replace(self.status, ending=ended_by)
            self._end_paused()

    def _end_paused(self) -> None:
        """Nothing promotes a trial of a study that ends. There may be thousands: see `has_more`."""
        is_short = self.status.ending in _WITHOUT_TRIALS
        reason = "the study has no further trials" if is_short else "its study ends"
        for number in nsmallest(max(0, self._num_to_end), self.opened.paused):
            if self.status.is_cancelled:
                self._cancel(number)
            else:
                self._drop(number, reason)

    def _propose(self, request_id: str | None = None) -> bool:
        """Propose the next point; False when there is none, or none yet."""
        number = len(self.trials)
        if self.status.is_ending or self.status.paused or number >= self.status.num_trials:
            return False
        if not self.pruner.may_propose(self.trials):
            return False
        proposal = self.sampler.propose(self.trials, number)
        if proposal is None:
            self.status = replace(self.status, num_points=number)
            self._make_strategies(list(self.trials))
            return False
        rungs = self.pruner.steps_of(number)
        self._start(
            ProposeTrial(number, proposal.point, proposal.why, rungs, request_id=request_id)
        )
        return True

    def _forked(self, fork: Fork) -> ProposeTrial:
        number = len(self.trials)
        at = max((one.step for one in self.trials[fork.parent].measured), default=0)
        rungs = tuple(step for step in self.pruner.steps_of(number) if step > at)
        return ProposeTrial(number, fork.point, fork.why, rungs, parent=fork.parent)

    def _has_place(self) -> bool:
        if self.num_active >= self.status.numbers.max_parallel_trials:
            return False
        if self.plan.is_external or not self.plan.learns:
            return True
        # No more points are decided on than the pool has devices for: later ones know more.
        return self.opened.num_waiting < max(1, self.opened.num_holding)

    def _finish(self) -> None:
        end = end_of(self.status, self.trials, may_go_on=self.may_go_on)
        if end is not None:
            self.status = replace(self.status, is_finished=True)
            self._actions.append(end)

    @property
    def may_go_on(self) -> bool:
        """Whether a study none of whose trials is open may still start one."""
        if len(self.trials) >= self.status.num_trials:
            return False
        if self.plan.is_external or self.pruner.next(self.trials) is not None:
            return True
        return self.status.paused is not None and self.pruner.may_propose(self.trials)

    def _end_early(self, limit: Crossed | None) -> None:
        if limit is None or self.status.is_ending:
            return
        self.status = replace(self.status, ending=limit.ended_by, paused=None)
        self._actions.append(EndEarly(limit.ended_by, limit.reason))
        self._stop_all(limit.reason)

    def _check_failures(self) -> None:
        if self.status.is_ending or (reason := failed_by(self.status)) is None:
            return
        if reason == "failed_trials":
            self._stop_all(f"{self.status.num_failed_here} trials of its study failed")
        elif self.status.paused:
            # What was paused with the study would wait for a resume that changes nothing.
            self._stop_all("the trials of its study are refused")
        self.status = replace(self.status, failing=reason, paused=None)

    def _count_since_best(self) -> None:
        self.status = counted(self.status, self.trials)
        limits = self.status.numbers.limits
        self._end_early(without_improvement(limits, self.status.num_since_best))
