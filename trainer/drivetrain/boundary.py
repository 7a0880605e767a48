"""What happens between two steps: the ranks agree to stop, to save, or on when to look again.

A stop is raised as `Interrupted` once its checkpoint is written, if it wants one, so whatever the
script does with the exception cannot change what was saved. From then on each look raises it again.
"""

import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from drivetrain.agreement import Wish, next_multiple, steps_between_looks
from drivetrain.best_saves import Evaluations, may_save_best
from drivetrain.checkpointing import Checkpointer
from drivetrain.errors import Interrupted
from drivetrain.held_state import Moment
from drivetrain.parallel import World
from drivetrain.stopping import StopRequest
from drivetrain_schemas.jobs import CheckpointPolicy

# Of a run that saves by the clock: an early failure, or a first try of one, costs no more.
FIRST_SAVE_SECONDS = 30.0


class Boundary:
    """The boundary of one run, on one rank. Nothing has to be done before step `due_at`."""

    def __init__(
        self,
        world: World,
        checkpointer: Checkpointer,
        policy: CheckpointPolicy,
        stop: StopRequest,
        moment: Callable[[], Moment],
    ) -> None:
        self.interrupted: Interrupted | None = None
        self.is_saved = False  # at the step of `interrupted`, or nothing is to be saved
        self.save_is_due = False
        self.logs_after = False  # this rank logs after the end of a step; with a stop: any rank
        self.due_at = 1
        self._world = world
        self._checkpointer = checkpointer
        self._policy = policy
        self._stop = stop
        self._moment = moment
        self._saves_nothing = False
        self._steps_between = 1
        self._evaluations = Evaluations()
        self._next_evaluation = 0
        self._saved_at = self._started_at = time.monotonic()
        self.start_at(0)

    def start_at(self, step: int) -> None:
        every = self._policy.every_steps
        self._next_save = next_multiple(step, every) if every else sys.maxsize
        self._looked_at = (step, time.monotonic())
        self.due_at = step + 1

    def hurry(self) -> None:
        """A stop is requested. With other ranks, the next look is at a step agreed before."""
        if self._world.size == 1:
            self.due_at = 0

    @property
    def awaits_end_of_pass(self) -> bool:
        """A save waited for what is logged after the pass, or one of these values may be best."""
        return self.save_is_due or self._checkpointer.judged_metric is not None

    def judged(self, step: int) -> None:
        """Rank 0 has logged a value of the judged metric of this step."""
        self._evaluations.logged(step)
        if self._world.size == 1:  # no other ranks: look after this step
            self._next_evaluation = step
            self.due_at = min(self.due_at, step)

    def raise_again(self) -> None:
        if self.interrupted is not None:
            raise Interrupted(self.interrupted.reason, self.interrupted.step)

    def look(self, may_save: bool = True) -> None:
        """Agree with the other ranks on what happens after this step, and do it.

        The save after the last step of an epoch is delayed until the script has finished that
        epoch, because the values it logs there belong to these weights.
        """
        self.raise_again()
        moment = self._moment()
        step = moment.step
        agreed = self._agree(step)
        if agreed.stop:
            self.logs_after = agreed.logs_after
            self._saves_nothing = agreed.saves_nothing
            self._interrupt(moment)
        self._checkpointer.check_once(moment)
        if step >= self._next_save and self._policy.every_steps:
            self._next_save = next_multiple(step, self._policy.every_steps)
            self.save_is_due = True
        self.save_is_due = self.save_is_due or agreed.save
        is_wanted = self.save_is_due or agreed.save_best
        if is_wanted and may_save and not agreed.is_saving:
            is_best, self.save_is_due = not self.save_is_due, False
            self._saved_at = time.monotonic()
            if self._checkpointer.holds_anything:
                self._checkpointer.begin(moment, is_best)
        self._looked_at = (step, time.monotonic())
        self.due_at = min(step + self._steps_between, self._next_save)
        if self._next_evaluation > step:
            self.due_at = min(self.due_at, self._next_evaluation)
        if self._stop.reason is not None:
            self.hurry()

    def _agree(self, step: int) -> Wish:
        now = time.monotonic()
        steps, seconds = step - self._looked_at[0], now - self._looked_at[1]
        minutes = self._policy.every_minutes
        due = math.inf if minutes is None else self._saved_at + 60 * minutes
        if minutes is not None and self._saved_at == self._started_at:
            due = min(due, self._started_at + FIRST_SAVE_SECONDS)
        wish = Wish(
            stop=self._stop.reason is not None,
            save=now >= due,
            is_saving=self._checkpointer.is_saving,
            failed_save=self._checkpointer.failed_save,
            steps_between=steps_between_looks(self._steps_between, seconds, steps),
            save_best=self._is_best(step),
            evaluation=self._find_next_evaluation(step),
            logs_after=self.logs_after,
            saves_nothing=self._stop.saves_nothing,
        )
        agreed = Wish.from_vector(self._world.largest(wish.to_vector()))
        self._steps_between = agreed.steps_between
        self._next_evaluation = agreed.evaluation
        self._checkpointer.failed_save_anywhere = agreed.failed_save
        return agreed

    def _find_next_evaluation(self, step: int) -> int:
        """The step that was agreed before, while it is ahead; else as rank 0 expects it."""
        if self._next_evaluation > step:
            return self._next_evaluation
        return self._evaluations.expected(step, self._steps_between // 5)

    def _is_best(self, step: int) -> bool:
        """Whether this step is to be saved because of its value (drivetrain.best_saves)."""
        checkpointer = self._checkpointer
        if self._evaluations.last != step or checkpointer.last_judged == step:
            return False
        run_seconds = time.monotonic() - self._started_at
        return checkpointer.is_best(step) and may_save_best(
            run_seconds, checkpointer.best_save_seconds
        )

    def _interrupt(self, moment: Moment) -> None:
        reason = self._stop.reason or "stopped with another rank"
        self.interrupted = Interrupted(reason, moment.step)
        self.due_at = 0
        self.save_interrupted(moment)
        raise self.interrupted

    def save_interrupted(self, moment: Moment) -> None:
        """Write the checkpoint from which the run continues, unless that is done already."""
        if not (self.is_saved or self._saves_nothing) and self._checkpointer.holds_anything:
            self._checkpointer.finish(moment, self._stop.seconds_to_save())
        self.is_saved = True


class AfterSteps(Iterator[Any]):
    """Follows the steps of an iterator: nothing, or again the interruption that ended them."""

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary

    def __next__(self) -> Any:
        self._boundary.raise_again()
        raise StopIteration
