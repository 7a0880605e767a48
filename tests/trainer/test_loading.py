"""A pass over the data continues at any batch, in the same order."""

import random

import numpy
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    TensorDataset,
)

from drivetrain import rng
from drivetrain.errors import MissingDistributedSampler
from drivetrain.loading import BatchSource

DATA = TensorDataset(torch.arange(50))


class Stream(IterableDataset):
    def __iter__(self):
        return iter(range(50))


class ShuffledStream(IterableDataset):
    """Draws an order at its start, and more with every item."""

    def __iter__(self):
        for number in torch.randperm(50):
            yield number + torch.rand(())


class Draws:
    """Draws from every global generator."""

    def __iter__(self):
        for _ in range(9):
            yield torch.tensor([random.random(), numpy.random.normal(), torch.rand(())])


class Shuffle(Sampler):
    """A custom sampler without a generator."""

    def __init__(self) -> None:
        pass

    def __iter__(self):
        return iter(torch.randperm(50).tolist())

    def __len__(self):
        return 50


class ShuffledBatches(Shuffle):
    """Draws during iteration."""

    def __iter__(self):
        for _ in range(13):
            yield [random.randrange(50) for _ in range(4)]

    def __len__(self):
        return 13


LOADERS = {
    "in order": lambda: DataLoader(DATA, 4),
    "shuffled": lambda: DataLoader(DATA, 4, shuffle=True),
    "shuffled by the user's generator": lambda: DataLoader(
        DATA, 4, shuffle=True, generator=torch.Generator().manual_seed(99)
    ),
    "one by one": lambda: DataLoader(DATA, batch_size=None, shuffle=True),
    "distributed": lambda: DataLoader(DATA, 4, sampler=DistributedSampler(DATA, 2, 1)),
    "shuffled below a batch sampler": lambda: DataLoader(
        DATA, batch_sampler=BatchSampler(RandomSampler(DATA), 4, drop_last=False)
    ),
    "distributed below a batch sampler": lambda: DataLoader(
        DATA, batch_sampler=BatchSampler(DistributedSampler(DATA, 2, 1), 4, drop_last=False)
    ),
    "shuffled by the user's sampler": lambda: DataLoader(DATA, 4, sampler=Shuffle()),
    "shuffled by the user's batch sampler": lambda: DataLoader(
        DATA, batch_sampler=ShuffledBatches()
    ),
    "two workers": lambda: DataLoader(DATA, 4, shuffle=True, num_workers=2),
    "workers that stay": lambda: DataLoader(
        DATA, 4, shuffle=True, num_workers=1, persistent_workers=True
    ),
    "a stream": lambda: DataLoader(Stream(), 4),
    "a stream that shuffles": lambda: DataLoader(ShuffledStream(), 4),
    "an iterable that draws": Draws,
    "a list": lambda: [torch.tensor([number]) for number in range(9)],
}


def numbers(batches) -> list[list[int]]:
    out = []
    for batch in batches:
        random.random(), numpy.random.rand(), torch.rand(1)  # as a training step does
        value = batch[0] if isinstance(batch, list | tuple) else batch
        out.append(value.reshape(-1).tolist())
    return out


@pytest.mark.parametrize("name", LOADERS)
def test_a_pass_continues_after_any_batch(name: str) -> None:
    whole = BatchSource(LOADERS[name](), 1, seed=3)
    passes = [numbers(whole.start_pass(epoch, 0)) for epoch in (0, 1)]
    torch.manual_seed(random.randrange(2**32))  # the order comes from seed and epoch alone
    again = BatchSource(LOADERS[name](), 1, seed=3)
    assert numbers(again.start_pass(1, 3)) == passes[1][3:]
    assert numbers(again.start_pass(0, 0)) == passes[0]
    assert numbers(again.start_pass(1, len(passes[1]))) == []


@pytest.mark.parametrize("name", [name for name in LOADERS if "shuffle" in name])
def test_passes_and_seeds_differ_in_order(name: str) -> None:
    source = BatchSource(LOADERS[name](), 1, seed=3)
    other = BatchSource(LOADERS[name](), 1, seed=4)
    orders = [numbers(source.start_pass(0, 0)), numbers(source.start_pass(1, 0))]
    orders.append(numbers(other.start_pass(0, 0)))
    assert orders[0] != orders[1]
    assert orders[0] != orders[2]


@pytest.mark.parametrize("name", LOADERS)
def test_loading_draws_no_global_random_number(name: str) -> None:
    def draw() -> list[float]:
        return [random.random(), numpy.random.rand(), torch.rand(()).item()]

    rng.seed_all(1)
    want = draw()
    rng.seed_all(1)
    list(BatchSource(LOADERS[name](), 1, seed=3).start_pass(0, 2))
    assert draw() == want


def test_ranks_draw_different_streams() -> None:
    first, second = (BatchSource(Draws(), 2, seed=3, rank=rank) for rank in (0, 1))
    assert numbers(first.start_pass(0, 0)) != numbers(second.start_pass(0, 0))


def test_the_script_may_iterate_over_its_loader_itself() -> None:
    loader = DataLoader(DATA, 4)
    source = BatchSource(loader, 1, seed=3)
    walk = source.start_pass(0, 5)
    next(walk)
    assert len(numbers(loader)) == len(loader) == 13


def test_no_data_is_loaded_and_discarded() -> None:
    loaded = []

    class Watched(TensorDataset):
        def __getitem__(self, index):
            loaded.append(index)
            return super().__getitem__(index)

    source = BatchSource(DataLoader(Watched(torch.arange(50)), 4), 1, seed=3)
    numbers(source.start_pass(0, 10))
    assert loaded == list(range(40, 50))


@pytest.mark.parametrize("name", ["in order", "shuffled", "one by one"])
def test_several_ranks_without_a_distributed_sampler_are_refused(name: str) -> None:
    with pytest.raises(MissingDistributedSampler, match="sampler=DistributedSampler"):
        BatchSource(LOADERS[name](), 2, seed=3)


@pytest.mark.parametrize(
    "name", ["distributed", "distributed below a batch sampler", "a stream", "a list"]
)
def test_several_ranks_may_divide_their_data_themselves(name: str) -> None:
    BatchSource(LOADERS[name](), 2, seed=3)
