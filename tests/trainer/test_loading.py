"""A pass over the data continues at any batch, in the same order."""

import random

import numpy
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    DistributedSampler,
    IterableDataset,
    RandomSampler,
    Sampler,
    TensorDataset,
    get_worker_info,
)

from drivetrain import rng
from drivetrain.divided_data import fingerprint, require_divided
from drivetrain.errors import MissingDistributedSampler
from drivetrain.loading import BatchSource, StoredPosition

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


class Augmented(Dataset):
    """Draws from every global generator for every sample."""

    def __len__(self):
        return 50

    def __getitem__(self, index):
        return index + torch.tensor([random.random(), numpy.random.rand(), torch.rand(())])


class Jitter:
    def __init__(self) -> None:
        self.numpy = numpy.random.default_rng(7)
        self.old_numpy = numpy.random.RandomState(7)
        self.python = random.Random(7)


class AugmentedByItsOwn(Augmented):
    """Draws from generators of its own and of its transform."""

    def __init__(self) -> None:
        self.torch = torch.Generator().manual_seed(7)
        self.transforms = [Jitter()]

    def __getitem__(self, index):
        by = self.transforms[0]
        drawn = [by.numpy.random(), by.old_numpy.rand(), by.python.random()]
        return index + torch.tensor([*drawn, torch.rand((), generator=self.torch)])


LOADERS = {
    "augmented by workers": lambda: DataLoader(Augmented(), 4, num_workers=2),
    "augmented by workers one by one": lambda: DataLoader(
        Augmented(), batch_size=None, num_workers=1
    ),
    "augmented by workers that stay": lambda: DataLoader(
        Augmented(), 4, shuffle=True, num_workers=2, persistent_workers=True
    ),
    "augmented by its own generators": lambda: DataLoader(AugmentedByItsOwn(), 4),
    "augmented by its own generators in workers": lambda: DataLoader(
        AugmentedByItsOwn(), 4, num_workers=2
    ),
    "a stream that draws in a worker that stays": lambda: DataLoader(
        ShuffledStream(), 4, num_workers=1, persistent_workers=True
    ),
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


def test_a_loader_with_workers_that_stay_may_be_used_before() -> None:
    make = LOADERS["augmented by workers that stay"]
    want = numbers(BatchSource(make(), 1, seed=3).start_pass(1, 2))
    loader = make()
    next(iter(loader))
    assert numbers(BatchSource(loader, 1, seed=3).start_pass(1, 2)) == want


def test_worker_init_fn_may_set_up_the_data_set() -> None:
    def set_up(_: int) -> None:
        get_worker_info().dataset.offset = 100

    class Offset(Augmented):
        offset = 0

        def __getitem__(self, index):
            return torch.tensor([index + self.offset])

    loader = DataLoader(Offset(), 50, num_workers=1, worker_init_fn=set_up)
    assert numbers(BatchSource(loader, 1, seed=3).start_pass(0, 0)) == [list(range(100, 150))]


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


class TwoRanks:
    """This rank's view of a reduction with another rank, whose vector is known."""

    size = 2

    def __init__(self, other: object) -> None:
        self._other = fingerprint(other)

    def largest(self, vector: list[int]) -> list[int]:
        return [max(vector[0], self._other), max(vector[1], -self._other)]


def batch(*values: float) -> dict[str, object]:
    return {"x": torch.tensor(values), "label": [numpy.arange(3), "text"]}


def test_ranks_with_the_same_first_batch_are_refused() -> None:
    with pytest.raises(MissingDistributedSampler, match=r"batches\[run.rank::run.world_size\]"):
        next(require_divided(iter([batch(1, 2)]), TwoRanks(batch(1, 2))))


@pytest.mark.parametrize(
    ("own", "other"),
    [([batch(1), batch(2)], batch(2)), ([], batch(2)), ([1, 2], 1), ([None], None)],
    ids=["divided", "nothing here", "numbers, by which a script divides", "nothing"],
)
def test_ranks_with_data_of_their_own_are_not_refused(own, other) -> None:
    assert list(require_divided(iter(own), TwoRanks(other))) == own


@pytest.mark.parametrize(
    ("stored", "now", "batches"),
    [
        (StoredPosition(10, 16, 2), (16, 4), 5),
        (StoredPosition(10, 16, 4), (16, 2), 20),
        (StoredPosition(10, 16, 2), (8, 4), 10),
        (StoredPosition(7, 16, 2), (16, 3), 4),  # 224 samples of 48 at once
        (StoredPosition(7, None, 2), (None, 4), 3),
    ],
)
def test_a_position_counts_samples_when_the_number_of_ranks_changes(stored, now, batches) -> None:
    assert stored.in_batches(*now) == batches
