"""Batches of one pass over the data, starting at any batch.

The order of a DataLoader is set from (seed, epoch) only, and a resumed pass skips the indices of
the batches that were consumed, so no data is loaded and discarded. Other iterables are read and
discarded up to the position, with a separate random number state, so that they return the same
batches again. The position counts batches consumed, never batches prefetched by workers. Worker
processes, and generators that the data set holds itself, are seeded for each batch from (seed,
epoch, rank, number of the batch), so that what they draw does not depend on where the pass began.
What is not resumed: draws of a sampler from a generator that it hides.
"""

import logging
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from drivetrain.errors import MissingDistributedSampler
from drivetrain.rng import OwnNumbers, hidden_generators, mix, seed_all, seed_hidden

_logger = logging.getLogger("drivetrain")


@dataclass(frozen=True, slots=True)
class StoredPosition:
    """A position in a pass, of a run with another number of ranks."""

    batches: int  # of each rank
    batch_size: int | None
    world_size: int

    def in_batches(self, batch_size: int | None, world_size: int) -> int:
        """The same position for these ranks, rounded down: samples are repeated, never left out."""
        sizes = (self.batch_size, batch_size) if self.batch_size and batch_size else (1, 1)
        num_samples = self.batches * sizes[0] * self.world_size
        batches = num_samples // (sizes[1] * world_size)
        _logger.info(
            "resumed on %d ranks instead of %d: the pass continues at batch %d of each rank instead"
            " of %d; %d samples are repeated",
            world_size,
            self.world_size,
            batches,
            self.batches,
            num_samples - batches * sizes[1] * world_size,
        )
        return batches


class BatchSource:
    """A loader whose order is controlled for one run."""

    @property
    def is_read_once(self) -> bool:
        """A generator, for example: a second pass over it is empty."""
        return isinstance(self._loader, Iterator)

    def __init__(self, loader: Iterable[Any], world_size: int, seed: int, rank: int = 0) -> None:
        self._loader: Any = loader
        self._seed = seed
        self._rank = rank
        self._order: _Resumable | None = None
        if _is_data_loader(loader) and not _is_stream(loader):
            _require_distributed_sampler(loader, world_size)
            self._order = _take_over(loader)

    @property
    def batch_size(self) -> int | None:
        """Samples per batch, where the loader knows it."""
        sampler = getattr(self._loader, "batch_sampler", None)
        size = getattr(sampler, "batch_size", getattr(self._loader, "batch_size", None))
        return size if isinstance(size, int) else None

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
        order, loader = self._order, self._loader
        dataset = loader.dataset
        order.skip = skip
        order.seed = mix(self._seed, epoch)
        if loader.num_workers or hidden_generators(dataset):
            order.load_seed = mix(self._seed, epoch, 3, self._rank)
            vars(loader)["dataset"] = _SeededDataset(dataset, is_alone=loader.num_workers > 0)
        try:
            return iter(loader)
        finally:  # the script may iterate over the same loader itself
            order.skip, order.load_seed = 0, None
            vars(loader)["dataset"] = dataset

    def _read_up_to(self, epoch: int, skip: int) -> Iterator[Any]:
        if isinstance(self._loader, Sequence):
            return islice(self._loader, skip, None)
        if getattr(self._loader, "persistent_workers", False):
            self._loader._iterator = None  # workers that stay would go on with their numbers
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
    """A sampler whose next iteration leaves out its first `skip` items.

    With a `load_seed`, each item brings the seed with which the data set loads it.
    """

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.skip = 0
        self.seed = 0
        self.load_seed: int | None = None
        self._draws_globally = any(not _is_of_torch(one) for one in _chain(inner))

    def __iter__(self) -> Iterator[Any]:
        items = OwnNumbers(self.inner, self.seed) if self._draws_globally else iter(self.inner)
        rest = islice(items, self.skip, None)
        return rest if self.load_seed is None else _seeded(rest, self.skip, self.load_seed)

    def __len__(self) -> int:
        return len(self.inner)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class _SeededItem:
    """What is loaded next, a batch of indices or one index, and its seed."""

    def __init__(self, item: Any, seed: int) -> None:
        self.item = item
        self.seed = seed


def _seeded(items: Iterable[Any], first: int, seed: int) -> Iterator[_SeededItem]:
    for number, item in enumerate(items, first):
        yield _SeededItem(item, mix(seed, number))


class _SeededDataset:
    """A data set that loads each `_SeededItem` with its own seed.

    `is_alone`: in a worker process, whose global generators nobody else uses.
    """

    def __init__(self, dataset: Any, is_alone: bool) -> None:
        vars(self).update(_dataset=dataset, _is_alone=is_alone, _generators=None)

    def __getitem__(self, index: Any) -> Any:
        return self._dataset[self._prepare(index)]

    def __getitems__(self, batch: Any) -> Any:
        indices = self._prepare(batch)
        if callable(load := getattr(self._dataset, "__getitems__", None)):
            return load(indices)
        return [self._dataset[index] for index in indices]

    def __len__(self) -> int:
        return len(self._dataset)

    def __getattr__(self, name: str) -> Any:
        if name == "_dataset":  # not there yet while it is unpickled
            raise AttributeError(name)
        return getattr(self._dataset, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._dataset, name, value)  # a worker_init_fn may set up the data set

    def _prepare(self, item: Any) -> Any:
        """A script's own loop over the loader brings no seed."""
        if not isinstance(item, _SeededItem):
            return item
        if self._generators is None:  # found in the process that uses them
            vars(self)["_generators"] = hidden_generators(self._dataset)
        seed_hidden(self._generators, item.seed)
        if self._is_alone:
            seed_all(item.seed, left_out=("torch",))
            sys.modules["torch"].default_generator.manual_seed(item.seed)
        return item.item


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
        loader._iterator = None  # workers that stay, started by the script, know the old one
    return sampler


def _require_distributed_sampler(loader: Any, world_size: int) -> None:
    if world_size == 1 or any(hasattr(one, "num_replicas") for one in _samplers(loader)):
        return
    raise MissingDistributedSampler(
        f"{world_size} ranks would all train on the same samples. Give the loader "
        "sampler=DistributedSampler(dataset, run.world_size, run.rank) and leave out shuffle."
    )
