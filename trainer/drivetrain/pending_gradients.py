"""Gradients that no step of their optimizer has used yet, as a checkpoint holds them.

A script that calls `backward()` for several batches and then `step()` may be saved in between: what
it has summed up until then is in the gradients alone. After a step they are of no more use, so
checkpoints between steps hold none. By the name of the optimizer: one entry for each of its
parameters, in their order. Gradients that are sharded or sparse are left out.
"""

import weakref
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

# A gradient and how often it had been changed.
_Mark = tuple["weakref.ref[torch.Tensor]", int]


class PendingGradients:
    """Of the optimizers that are watched."""

    def __init__(self) -> None:
        self._used: dict[str, _Mark] = {}

    def watch(self, name: str, optimizer: "torch.optim.Optimizer") -> None:
        """Notice each step of this optimizer, by its first gradient: microseconds a step."""

        def note(*_: Any) -> None:
            first = next(_gradients(optimizer), None)
            if first is not None:
                self._used[name] = (weakref.ref(first), first._version)

        optimizer.register_step_post_hook(note)

    def of(
        self, optimizers: Mapping[str, "torch.optim.Optimizer"]
    ) -> dict[str, list["torch.Tensor | None"]]:
        """Those of optimizers that have any. Not copies."""
        return {
            name: [one.grad if _is_plain(one.grad) else None for one in _parameters(optimizer)]
            for name, optimizer in optimizers.items()
            if self._are_pending(name, optimizer)
        }

    def _are_pending(self, name: str, optimizer: "torch.optim.Optimizer") -> bool:
        first = next(_gradients(optimizer), None)
        if first is None:
            return False
        used, version = self._used.get(name, (None, 0))
        if used is not None and used() is first and version == first._version:
            return False
        # Some scripts set them to zero instead of removing them.
        return any(bool(one.any()) for one in _gradients(optimizer))


def restore(optimizer: "torch.optim.Optimizer", stored: Iterable["torch.Tensor | None"]) -> None:
    """Put them back, for the parameters of this optimizer in their order."""
    for parameter, gradient in zip(_parameters(optimizer), stored, strict=True):
        if gradient is not None:
            parameter.grad = gradient.to(parameter.device, copy=True)


def _parameters(optimizer: "torch.optim.Optimizer") -> Iterable["torch.Tensor"]:
    return (one for group in optimizer.param_groups for one in group["params"])


def _gradients(optimizer: "torch.optim.Optimizer") -> Iterator["torch.Tensor"]:
    for one in _parameters(optimizer):
        if one.grad is not None and _is_plain(one.grad):
            yield one.grad


def _is_plain(gradient: "torch.Tensor | None") -> bool:
    import torch

    return type(gradient) is torch.Tensor and gradient.layout is torch.strided
