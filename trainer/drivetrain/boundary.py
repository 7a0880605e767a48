"""What happens between two steps: the ranks agree to stop, to save, or on when to look again.

A stop is raised as `Interrupted` once its checkpoint is written, so whatever the script does with
the exception cannot change what was saved. From then on every look raises it again.
"""

import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

from drivetrain.agreement import Wish, next_multiple, steps_between_looks
from drivetrain.checkpointing import Checkpointer
from drivetrain.errors import Interrupted
from drivetrain.held_state import Moment
from drivetrain.parallel import World
from drivetrain.stopping import StopRequest
from drivetrain_schemas.jobs import CheckpointPolicy


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
        self.is_saved = False  # at the step of `interrupted`
        self.save_is_due = False
        self.due_at = 1
        self._world = world
        self._checkpointer = checkpointer
        self._policy = policy
        self._stop = stop
        self._moment = moment
        self._steps_between = 1
        self._saved_at = time.monotonic()
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
            self._interrupt(moment)
        self._checkpointer.check_once()
        if step >= self._next_save and self._policy.every_steps:
            self._next_save = next_multiple(step, self._policy.every_steps)
            self.save_is_due = True
        self.save_is_due = self.save_is_due or agreed.save
        if self.save_is_due and may_save and not agreed.is_saving:
            self.save_is_due = False
            self._saved_at = time.monotonic()
            if self._checkpointer.holds_anything:
                self._checkpointer.begin(moment)
        self._looked_at = (step, time.monotonic())
        self.due_at = min(step + self._steps_between, self._next_save)
        if self._stop.reason is not None:
            self.hurry()

    def _agree(self, step: int) -> Wish:
        now = time.monotonic()
        steps, seconds = step - self._looked_at[0], now - self._looked_at[1]
        minutes = self._policy.every_minutes
        wish = Wish(
            stop=self._stop.reason is not None,
            save=minutes is not None and now - self._saved_at >= 60 * minutes,
            is_saving=self._checkpointer.is_saving,
            failed_save=self._checkpointer.failed_save,
            steps_between=steps_between_looks(self._steps_between, seconds, steps),
        )
        agreed = Wish.from_vector(self._world.largest(wish.to_vector()))
        self._steps_between = agreed.steps_between
        self._checkpointer.failed_save_anywhere = agreed.failed_save
        return agreed

    def _interrupt(self, moment: Moment) -> None:
        reason = self._stop.reason or "stopped with another rank"
        self.interrupted = Interrupted(reason, moment.step)
        self.due_at = 0
        self.save_interrupted(moment)
        raise self.interrupted

    def save_interrupted(self, moment: Moment) -> None:
        """Write the checkpoint from which the run continues, unless that is done already."""
        if not self.is_saved and self._checkpointer.holds_anything:
            self._checkpointer.finish(moment, self._stop.seconds_to_save())
        self.is_saved = True


class AfterSteps(Iterator[Any]):
    """Follows the steps of an iterator: nothing, or again the interruption that ended them."""

    def __init__(self, boundary: Boundary) -> None:
        self._boundary = boundary

    def __next__(self) -> Any:
        self._boundary.raise_again()
        raise StopIteration
