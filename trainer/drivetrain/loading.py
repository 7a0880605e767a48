"""Batches of one pass over the data, from any batch on.

A DataLoader is taken over: its order comes from (seed, epoch) alone, and a resumed pass skips the
indices of the batches that were consumed, so nothing is loaded to be thrown away. Other iterables
are read and dropped up to the place. The place counts batches consumed, never batches drawn ahead
by workers. Randomness inside worker processes is seeded per pass and is not resumed in the middle
of one; with `num_workers=0` everything is.
"""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from drivetrain.errors import MissingDistributedSampler
from drivetrain.rng import mix


class BatchSource:
    """A loader, taken over for one run."""

    def __init__(self, loader: Iterable[Any], world_size: int, seed: int) -> None:
        self._loader: Any = loader
        self._seed = seed
        self._order: _Resumable | None = None
        if _is_data_loader(loader):
            _require_distributed_sampler(loader, world_size)
            self._order = _take_over(loader)

    @property
    def num_batches(self) -> int | None:
        try:
            return len(self._loader)
        except TypeError:
            return None

    def start_pass(self, epoch: int, skip: int) -> Iterator[Any]:
        """The batches of pass `epoch` from number `skip` on. Draws no global random number."""
        self._set_epoch(epoch)
        if self._order is None:
            return islice(iter(self._loader), skip, None)
        self._order.skip = skip
        try:
            return iter(self._loader)
        finally:
            self._order.skip = 0  # the script may walk over the same loader by itself

    def _set_epoch(self, epoch: int) -> None:
        loader = self._loader
        owners = [loader, getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)]
        for owner in owners:
            if callable(set_epoch := getattr(owner, "set_epoch", None)):
                set_epoch(epoch)
        if not _is_data_loader(loader):
            return
        import torch

        # Two generators, because the loader draws its workers' seed only when it starts workers.
        loader.generator = loader.generator or torch.Generator()
        loader.generator.manual_seed(mix(self._seed, epoch, 1))
        sampler = getattr(loader.sampler, "inner", loader.sampler)
        if hasattr(sampler, "generator"):
            sampler.generator = torch.Generator().manual_seed(mix(self._seed, epoch))


class _Resumable:
    """A sampler whose next walk leaves out its first `skip` items."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.skip = 0

    def __iter__(self) -> Iterator[Any]:
        return islice(iter(self.inner), self.skip, None)

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _is_data_loader(loader: Any) -> bool:
    torch = sys.modules.get("torch.utils.data")
    return torch is not None and isinstance(loader, torch.DataLoader)


def _take_over(loader: Any) -> _Resumable | None:
    from torch.utils.data import IterableDataset

    if isinstance(loader.dataset, IterableDataset):
        return None
    # DataLoader forbids to set this attribute after construction, for its own consistency; the
    # wrapper keeps length and content, and the iterators ask for it when they start.
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    sampler = vars(loader)[name]
    if not isinstance(sampler, _Resumable):
        sampler = vars(loader)[name] = _Resumable(sampler)
    return sampler


def _require_distributed_sampler(loader: Any, world_size: int) -> None:
    from torch.utils.data import IterableDataset

    if world_size == 1 or isinstance(loader.dataset, IterableDataset):
        return
    samplers = (loader.sampler, loader.batch_sampler)
    if any(hasattr(sampler, "num_replicas") for sampler in samplers):
        return
    raise MissingDistributedSampler(
        f"{world_size} ranks would all train on the same samples. Give the loader "
        "sampler=DistributedSampler(dataset, run.world_size, run.rank) and leave out shuffle."
    )
