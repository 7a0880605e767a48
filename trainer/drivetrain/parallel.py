"""The ranks of a run: process group, device, data parallelism, and the small collectives.

torch is imported only when it is needed: a run of one rank that trains without torch never loads
it. Collectives about the run itself use gloo on the CPU, whatever the model uses.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from drivetrain.environment import Environment
from drivetrain.own_work import OwnWork

if TYPE_CHECKING:
    import torch


class World:
    """The process group of this run, on one of its ranks."""

    def __init__(self, environment: Environment) -> None:
        self.rank = environment.rank
        self.size = environment.world_size
        self._local_rank = environment.local_rank
        self._device_type = environment.device_type
        self._device: torch.device | None = None
        self._group: Any = None
        self._owns_group = False
        self.replicas: list[Any] = []  # modules wrapped for data parallelism
        self.own_work = OwnWork()
        if self.size > 1:
            self._join(environment.init_method)

    @property
    def device(self) -> "torch.device":
        if self._device is None:
            import torch

            is_cpu = self._device_type == "cpu" or not torch.cuda.is_available()
            self._device = torch.device("cpu" if is_cpu else f"cuda:{self._local_rank}")
            if not is_cpu:
                torch.cuda.set_device(self._device)
        return self._device

    def wrap(self, module: "torch.nn.Module", options: Mapping[str, Any]) -> "torch.nn.Module":
        """The module on this rank's device, its gradients averaged over the ranks.

        `options` are arguments of DistributedDataParallel.
        """
        module = module.to(self.device)
        if self.size == 1 or not any(p.requires_grad for p in module.parameters()):
            return module
        from torch.nn.parallel import DistributedDataParallel

        devices = [self.device] if self.device.type == "cuda" else None
        replica = DistributedDataParallel(module, **{"device_ids": devices, **options})
        self.replicas.append(replica)
        self.own_work.watch(replica)
        return replica

    def largest(self, vector: Sequence[int]) -> list[int]:
        """The element-wise maximum over all ranks."""
        if self.size == 1:
            return list(vector)
        import torch
        import torch.distributed as dist

        tensor = torch.tensor(vector, dtype=torch.int64)
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX, group=self._group)
        return [int(number) for number in tensor.tolist()]

    def all_agree(self, is_well: bool) -> bool:
        """Whether all ranks passed True."""
        return self.largest([int(not is_well)]) == [0]

    def share(self, value: Any) -> Any:
        """Rank 0's value, on all ranks."""
        if self.size == 1:
            return value
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._group)
        return box[0]

    def leave(self) -> None:
        """Destroy the process group, if it is ours. Never raises: other ranks may have exited."""
        if not self._owns_group:
            return
        import torch.distributed as dist

        self._owns_group = False
        if dist.is_initialized():
            with suppress(RuntimeError):
                dist.destroy_process_group()

    def _join(self, init_method: str) -> None:
        import torch.distributed as dist

        backend = "nccl" if self.device.type == "cuda" else "gloo"
        if not dist.is_initialized():
            dist.init_process_group(
                backend, init_method=init_method, rank=self.rank, world_size=self.size
            )
            self._owns_group = True
        if dist.get_backend() != "gloo":
            self._group = dist.new_group(backend="gloo")


def unwrap(thing: Any) -> Any:
    """The module inside data-parallel and compile wrappers, so that names have no `module.`."""
    while True:
        inner = getattr(thing, "_orig_mod", None)
        if inner is None and type(thing).__name__ in ("DistributedDataParallel", "DataParallel"):
            inner = thing.module
        if inner is None:
            return thing
        thing = inner


class Accumulation(list[Any]):
    """The batches of one optimizer step. During iteration, gradients are averaged over the ranks
    at the last batch only."""

    def __init__(self, batches: Iterable[Any], replicas: Iterable[Any]) -> None:
        super().__init__(batches)
        self._replicas = list(replicas)

    def __iter__(self) -> Iterator[Any]:
        try:
            for index in range(len(self)):
                self._synchronize(index == len(self) - 1)
                yield self[index]
        finally:
            self._synchronize(True)

    def _synchronize(self, is_last: bool) -> None:
        for replica in self._replicas:
            replica.require_backward_grad_sync = is_last
