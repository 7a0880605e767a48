"""Where a run is on this rank: its step, its place in the data, and the random numbers there."""

from types import SimpleNamespace
from typing import Any

from drivetrain import rng
from drivetrain.held_state import Moment
from drivetrain.loading import BatchSource, StoredPosition
from drivetrain.parallel import World
from drivetrain.seeding import Seeds


class Progress:
    """Checkpoints store it as a `Moment`.

    Attributes: `batches` are those of the current pass that are consumed, `position` those before
    the current ones. `total_steps` may become known later than `max_steps`; it is for display.
    """

    def __init__(self, world: World, seeds: Seeds, max_steps: int | None) -> None:
        self.seed = seeds.seed
        self.max_steps = max_steps
        self.total_steps = max_steps
        self.step = 0
        self.epoch = 0
        self.batches = 0
        self.position = 0
        self.state = SimpleNamespace()  # values of the script, of the run and of this pass
        self.epoch_state = SimpleNamespace()
        self._world = world
        self._seeds = seeds
        self._batch_size: int | None = None
        self._stored_position: StoredPosition | None = None  # of another number of ranks
        self._has_parted = False
        self._rng_to_restore: dict[str, Any] | None = None
        self._rng_of_pass: dict[str, Any] | None = None  # at the top of the current epoch

    @property
    def is_finished(self) -> bool:
        return self.max_steps is not None and self.step >= self.max_steps

    def moment(self) -> Moment:
        loop = {
            "batch_size": self._batch_size,
            "rng_of_pass": self._rng_of_pass if self.batches else None,
            "world_size": self._world.size,
            "state": vars(self.state),
            "epoch_state": vars(self.epoch_state),
        }
        return Moment(self.step, self.epoch, self.batches, loop)

    def continue_from(self, moment: Moment) -> None:
        """The random numbers of the process are already those of the moment."""
        self.step, self.epoch, self.batches = moment.step, moment.epoch, moment.batches
        self._rng_of_pass = moment.loop.get("rng_of_pass")
        vars(self.state).update(moment.loop.get("state", {}))
        vars(self.epoch_state).update(moment.loop.get("epoch_state", {}))
        self._has_parted = True
        stored_size = moment.loop.get("world_size", self._world.size)
        if stored_size != self._world.size:
            self._continue_with_other_ranks(moment, stored_size)
        # Set again when the loop starts, so that draws of the script until then change nothing.
        self._rng_to_restore = rng.get_state()

    def start_epoch(self) -> None:
        """What the script draws before it begins the pass is the same after a resume within it."""
        self.position = self.batches
        if self._rng_to_restore is None:
            self._rng_of_pass = rng.get_state()
        elif self.batches and self._rng_of_pass is not None:
            rng.set_state(self._rng_of_pass)
        else:
            self.restore_random_numbers()
            self._rng_of_pass = rng.get_state()

    def start_pass(self, source: BatchSource) -> None:
        if self._stored_position is not None:
            self.batches = self._stored_position.in_batches(source.batch_size, self._world.size)
            self.position, self._stored_position = self.batches, None
        self._batch_size = source.batch_size

    def take(self, num_batches: int) -> None:
        """The next step begins, with so many batches."""
        self.step += 1
        self.position = self.batches
        self.batches += num_batches

    def end_pass(self) -> None:
        self.epoch, self.batches, self._rng_of_pass = self.epoch + 1, 0, None
        self.epoch_state = SimpleNamespace()

    def part_random_numbers(self) -> None:
        """Until here all ranks draw the same, to build the same model; then they differ."""
        if not self._has_parted and self._world.size > 1:
            self._seeds.part(self._world.rank)
        elif not self._has_parted:
            self._seeds.look_again()
        self._has_parted = True

    def restore_random_numbers(self) -> None:
        if self._rng_to_restore is not None:
            rng.set_state(self._rng_to_restore)
            self._rng_to_restore = None

    def keep_random_numbers(self) -> None:
        """A loop of the script's own has gone on from those that `continue_from` has found."""
        self._rng_to_restore = None

    def _continue_with_other_ranks(self, moment: Moment, stored_size: int) -> None:
        """The position in the data is that of the samples; ranks that are new draw their own."""
        if moment.batches:
            self._stored_position = StoredPosition(
                moment.batches, moment.loop.get("batch_size"), stored_size
            )
        if self._world.rank >= stored_size:
            self._rng_of_pass, self.epoch_state = None, SimpleNamespace()
            rng.seed_all(rng.mix(self.seed, self._world.rank, self.step))
