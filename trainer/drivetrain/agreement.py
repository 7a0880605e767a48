"""When ranks agree on what to do next, and what they agree on.

Pure. All ranks must stop and checkpoint at the same step. So each puts what it wants into a small
vector, the vectors are reduced by maximum, and every rank acts on the result. A *look* is one such
reduction; there are about two per second. The number of steps between two looks is derived from the
measured time of a step and is itself agreed, so that all ranks look at the same step.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LOOK_SECONDS = 0.5
MAX_STEPS_BETWEEN = 1000


@dataclass(frozen=True, slots=True)
class Wish:
    """What one rank wants; after the reduction by maximum, what all ranks do.

    `failed_save` is the number of the last save that failed on this rank (0: none), so that
    rank 0 does not wait for a shard that will not be written. `save_best`: the judged metric has
    its best value at this step. `evaluation` is the step at which the next value is expected
    (0: not known); all ranks look there. `logs_after`: the script logs the values of a step after
    it has ended the step. `saves_nothing`: the stop wants no last checkpoint; without the agreement
    some ranks would wait for the others to save.
    """

    stop: bool = False
    save: bool = False
    is_saving: bool = False
    failed_save: int = 0
    steps_between: int = 1
    save_best: bool = False
    evaluation: int = 0
    logs_after: bool = False
    saves_nothing: bool = False

    def to_vector(self) -> list[int]:
        return [
            int(self.stop),
            int(self.save),
            int(self.is_saving),
            self.failed_save,
            self.steps_between,
            int(self.save_best),
            self.evaluation,
            int(self.logs_after),
            int(self.saves_nothing),
        ]

    @staticmethod
    def from_vector(vector: Sequence[int]) -> "Wish":
        stop, save, is_saving, failed_save, steps_between, *rest = vector
        save_best, evaluation, logs_after, saves_nothing = rest
        return Wish(
            stop=bool(stop),
            save=bool(save),
            is_saving=bool(is_saving),
            failed_save=failed_save,
            steps_between=steps_between,
            save_best=bool(save_best),
            evaluation=evaluation,
            logs_after=bool(logs_after),
            saves_nothing=bool(saves_nothing),
        )


def steps_between_looks(previous: int, seconds: float, steps: int) -> int:
    """How many steps until the next look, after `steps` steps took `seconds`.

    At most twice the previous number, so that a burst of quick steps before slow ones cannot delay
    a stop for long.
    """
    if steps <= 0 or seconds <= 0:
        return previous
    wanted = round(LOOK_SECONDS * steps / seconds)
    return max(1, min(wanted, 2 * previous, MAX_STEPS_BETWEEN))


def next_multiple(step: int, every: int) -> int:
    """The first multiple of `every` after `step`."""
    return (step // every + 1) * every
