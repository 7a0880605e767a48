"""Batches of one pass over the data, starting at any batch.

The order of a DataLoader is set from (seed, epoch) only, and a resumed pass skips the indices of
the batches that were consumed, so no data is loaded and discarded. Other iterables are read and
discarded up to the position, with a separate random number state, so that they return the same
batches again. The position counts batches consumed, never batches prefetched by workers. Randomness
inside worker processes is seeded per pass and is not resumed in the middle of one. With
`num_workers=0` all randomness is resumed, except draws of a sampler from a generator that it hides.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from drivetrain.errors import MissingDistributedSampler
from drivetrain.rng import OwnNumbers, mix


class BatchSource:
    """A loader whose order is controlled for one run."""

    def __init__(self, loader: Iterable[Any], world_size: int, seed: int, rank: int = 0) -> None:
        self._loader: Any = loader
        self._seed = seed
        self._rank = rank
        self._order: _Resumable | None = None
        if _is_data_loader(loader) and not _is_stream(loader):
            _require_distributed_sampler(loader, world_size)
            self._order = _take_over(loader)

    @property
    def num_batches(self) -> int | None:
        try:
            return len(self._loader)
        except TypeError:
            return None

    def start_pass(self, epoch: int, skip: int) -> Iterator[Any]:
        """The batches of pass `epoch`, starting at number `skip`. Draws no global random number."""
        self._set_epoch(epoch)
        if self._order is None:
            return self._read_up_to(epoch, skip)
        self._order.skip = skip
        self._order.seed = mix(self._seed, epoch)
        try:
            return iter(self._loader)
        finally:
            self._order.skip = 0  # the script may iterate over the same loader itself

    def _read_up_to(self, epoch: int, skip: int) -> Iterator[Any]:
        if isinstance(self._loader, Sequence):
            return islice(self._loader, skip, None)
        items = OwnNumbers(self._loader, mix(self._seed, epoch, 2, self._rank))
        for _ in islice(items, skip):
            pass
        return items

    def _set_epoch(self, epoch: int) -> None:
        loader = self._loader
        samplers = _samplers(loader) if _is_data_loader(loader) else []
        for owner in [loader, *samplers]:
            if callable(set_epoch := getattr(owner, "set_epoch", None)):
                set_epoch(epoch)
        if not _is_data_loader(loader):
            return
        import torch

        # Two generators, because the loader draws its workers' seed only when it starts workers.
        loader.generator = loader.generator or torch.Generator()
        loader.generator.manual_seed(mix(self._seed, epoch, 1, self._rank))
        for sampler in samplers:
            if isinstance(getattr(sampler, "generator", 0), torch.Generator | None):
                sampler.generator = torch.Generator().manual_seed(mix(self._seed, epoch))


class _Resumable:
    """A sampler whose next iteration leaves out its first `skip` items."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.skip = 0
        self.seed = 0
        self._draws_globally = any(not _is_of_torch(one) for one in _chain(inner))

    def __iter__(self) -> Iterator[Any]:
        items = OwnNumbers(self.inner, self.seed) if self._draws_globally else iter(self.inner)
        return islice(items, self.skip, None)

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def _is_data_loader(loader: Any) -> bool:
    torch = sys.modules.get("torch.utils.data")
    return torch is not None and isinstance(loader, torch.DataLoader)


def _is_stream(loader: Any) -> bool:
    from torch.utils.data import IterableDataset

    return isinstance(loader.dataset, IterableDataset)


def _samplers(loader: Any) -> list[Any]:
    """All samplers that affect the order, the outermost first."""
    outermost = loader.sampler if loader.batch_sampler is None else loader.batch_sampler
    return _chain(getattr(outermost, "inner", outermost))


def _chain(sampler: Any) -> list[Any]:
    """A sampler, the one it draws from (torch's name for it is `sampler`), and so on."""
    found: list[Any] = []
    while sampler is not None and not any(sampler is one for one in found):
        found.append(sampler)
        sampler = getattr(sampler, "sampler", None)
    return found


def _is_of_torch(sampler: Any) -> bool:
    """Torch's own samplers draw from their `generator`, which is set for each pass."""
    is_fixed = isinstance(sampler, Sequence)
    return is_fixed or type(sampler).__module__.startswith("torch.utils.data.")


def _take_over(loader: Any) -> _Resumable:
    # DataLoader does not allow setting this attribute after construction, for consistency. The
    # wrapper keeps length and content, and iterators read the attribute when they start.
    name = "sampler" if loader.batch_sampler is None else "batch_sampler"
    sampler = vars(loader)[name]
    if not isinstance(sampler, _Resumable):
        sampler = vars(loader)[name] = _Resumable(sampler)
    return sampler


def _require_distributed_sampler(loader: Any, world_size: int) -> None:
    if world_size == 1 or any(hasattr(one, "num_replicas") for one in _samplers(loader)):
        return
    raise MissingDistributedSampler(
        f"{world_size} ranks would all train on the same samples. Give the loader "
        "sampler=DistributedSampler(dataset, run.world_size, run.rank) and leave out shuffle."
    )
