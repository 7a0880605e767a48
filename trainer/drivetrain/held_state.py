"""What checkpoints hold of one rank: the named objects, random numbers, the position in the data.

Within an accumulation of gradients also these, which each rank has of its own.

Output: a JSON tree, and tensors that are the memory of the objects themselves. Input, on a resume:
the same, as it was stored. Data parallelism keeps modules, optimizers and schedules equal on all
ranks, so they are stored by rank 0 alone.
"""

import json
import logging
import zlib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from drivetrain import rng, tree
from drivetrain.errors import CheckpointMismatch, NotStorable
from drivetrain.parallel import World, unwrap
from drivetrain.pending_gradients import PendingGradients, restore
from drivetrain.tensor_files import Tensors

if TYPE_CHECKING:
    import torch

MAX_STATE_BYTES = 16 * 2**20
TOO_MUCH, LESS = "run.state holds more than 16 MiB", "keep long lists as arrays or in files"
_logger = logging.getLogger("drivetrain")


@dataclass(frozen=True, slots=True)
class Moment:
    """The progress of a run: steps done, the current pass, batches of that pass consumed.

    `loop` is what the loop itself needs to continue from here on this rank. It is stored as it is.
    """

    step: int = 0
    epoch: int = 0
    batches: int = 0
    loop: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stored:
    """What one rank has stored: its document, and its tensors by name."""

    document: dict[str, Any]
    tensors: Tensors


class HeldState:
    """The objects that one rank's checkpoints hold, by name."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._things: dict[str, Any] = {}
        self._gradients = PendingGradients()

    def holds_own_state(self, moment: Moment) -> bool:
        """Whether the script keeps something that is neither a model nor what trains it."""
        state = moment.loop.get("state") or moment.loop.get("epoch_state")
        return bool(state) or not all(map(is_replicated, self._things.values()))

    def hold(self, things: Mapping[str, Any]) -> None:
        """Add these. Raises NotStorable for state that cannot be stored."""
        for name, thing in things.items():
            if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
                raise TypeError(f"{name}: it has no state_dict and load_state_dict")
            thing = unwrap(thing)
            _refuse_unstorable(name, thing)
            self._things[name] = thing
        for name, optimizer in self._optimizers(things).items():
            self._gradients.watch(name, optimizer)

    def check(self, moment: Moment) -> None:
        """Refuse now what a save would refuse later, and too much. Copies nothing."""
        for name, thing in self._things.items():
            _refuse_unstorable(name, thing)
        loop = tree.encode(moment.loop, "run", tree.Collected())
        if moment.step == 1 and len(json.dumps(loop)) > MAX_STATE_BYTES:
            raise NotStorable(f"{TOO_MUCH}: {LESS}")

    def fingerprint(self) -> int:
        """Equal on ranks with equal weights; 0 where shards of weights are held."""
        import torch

        found = 0
        modules = [thing for thing in self._things.values() if isinstance(thing, torch.nn.Module)]
        for module in modules:
            if any(type(part).__name__ == "FullyShardedDataParallel" for part in module.modules()):
                return 0
            for weights in list(module.parameters())[-1:]:
                numbers = weights.detach().flatten()[:1024].tolist()
                found = zlib.crc32(repr(numbers).encode(), found)
        return found

    def encode(self, moment: Moment) -> tuple[dict[str, Any], Tensors]:
        tensors = tree.Collected()
        loop = tree.encode(moment.loop, "run", tensors)
        state = {
            "step": moment.step,
            "epoch": moment.epoch,
            "batches": moment.batches,
            "loop": loop,
            "on_device": [name for name, one in tensors.tensors.items() if not one.is_cpu],
            "rng": tree.encode(rng.get_state(), "rng", tensors),
            "things": {
                name: tree.encode(thing.state_dict(), name, tensors)
                for name, thing in self._things.items()
                if self._world.rank == 0 or not is_replicated(thing)
            },
        }
        if gradients := self._gradients.of(self._optimizers(self._things)):
            state["gradients"] = tree.encode(gradients, "gradients", tensors)
        return state, tensors.tensors

    def load(self, first: Stored, own: Stored, has_own: bool) -> Moment:
        """Restore everything from what rank 0 and this rank have stored.

        `has_own`: false for a rank that the stored run did not have; its random numbers stay.
        """
        for name, thing in self._things.items():
            source = first if is_replicated(thing) else own
            stored = source.document["things"]
            if name not in stored:
                raise CheckpointMismatch(
                    f"run.resume({name}=...): the checkpoint of step {source.document['step']} "
                    f"holds {', '.join(stored)}. Name the same objects as the run before."
                )
            thing.load_state_dict(tree.decode(stored[name], source.tensors))
        if forgotten := first.document["things"].keys() - self._things.keys():
            _logger.warning("the checkpoint also holds %s", ", ".join(sorted(forgotten)))
        if has_own:
            rng.set_state(tree.decode(own.document["rng"], own.tensors))
            gradients = tree.decode(own.document.get("gradients", {}), own.tensors)
            for name, optimizer in self._optimizers(gradients).items():
                restore(optimizer, gradients[name])
        document = first.document
        moved = own.document.get("on_device", ())
        tensors = own.tensors | {name: own.tensors[name].to(self._world.device) for name in moved}
        loop = tree.decode(own.document.get("loop", {}), tensors)
        return Moment(document["step"], document["epoch"], document["batches"], loop)

    def _optimizers(self, names: Iterable[str]) -> "dict[str, torch.optim.Optimizer]":
        """Those of the held objects with these names that are optimizers."""
        from torch.optim import Optimizer

        held = {name: self._things[name] for name in names if name in self._things}
        return {name: thing for name, thing in held.items() if isinstance(thing, Optimizer)}


def _refuse_unstorable(name: str, thing: Any) -> None:
    with suppress(ValueError):  # lazy modules have no shapes before their first batch
        tree.encode(thing.state_dict(), name, tree.Collected())


def is_replicated(thing: Any) -> bool:
    """Whether data parallelism keeps this state equal on all ranks, so that one copy is enough."""
    from torch.nn import Module
    from torch.optim import Optimizer
    from torch.optim.lr_scheduler import LRScheduler

    return isinstance(thing, Module | Optimizer | LRScheduler)
