"""The state of every random number generator of one rank: python, numpy, torch on CPU and CUDA.

numpy and torch are included only if the script has imported them.
"""

import random
import sys
from collections.abc import Callable, Container, Iterable, Iterator
from itertools import islice
from types import FunctionType, ModuleType
from typing import Any

_MOST_PARTS = 1000
_MOST_ITEMS = 64


def seed_all(seed: int, left_out: Container[str] = ()) -> None:
    """Seed all generators but those left out (python, numpy, torch) from one seed."""
    if "python" not in left_out:
        random.seed(seed)
    if "numpy" not in left_out and (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed % 2**32)
    if "torch" not in left_out and (torch := sys.modules.get("torch")) is not None:
        torch.manual_seed(seed)


def mix(*numbers: int) -> int:
    """One 63-bit seed from several numbers; close numbers give unrelated seeds (splitmix64)."""
    state = 0
    for number in numbers:
        state = (state ^ number) + 0x9E3779B97F4A7C15 & 2**64 - 1
        state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & 2**64 - 1
        state = (state ^ state >> 27) * 0x94D049BB133111EB & 2**64 - 1
        state ^= state >> 31
    return state >> 1


def get_state() -> dict[str, Any]:
    """The state as a tree that a checkpoint can hold."""
    state: dict[str, Any] = {"python": random.getstate()}
    if (numpy := sys.modules.get("numpy")) is not None:
        state["numpy"] = numpy.random.get_state(legacy=False)
    if (torch := sys.modules.get("torch")) is not None:
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state()
    return state


def set_state(state: dict[str, Any]) -> None:
    """Restore a state that `get_state` returned."""
    random.setstate(state["python"])
    if "numpy" in state:
        import numpy

        numpy.random.set_state(state["numpy"])
    if "torch" in state:
        import torch

        torch.set_rng_state(state["torch"])
        if "cuda" in state and torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"])


def hidden_generators(owner: Any) -> list[Any]:
    """The generators that an object holds itself or in its parts, such as a data set's transforms.

    Bounded: of long lists only the beginning is searched.
    """
    found: list[Any] = []
    seen: set[int] = set()
    waiting = [owner]
    while waiting and len(seen) < _MOST_PARTS:
        part = waiting.pop()
        if id(part) in seen:
            continue
        seen.add(id(part))
        if _seeder_of(part) is not None:
            found.append(part)
        elif isinstance(part, list | tuple):
            waiting += part[:_MOST_ITEMS]
        elif isinstance(part, dict):
            waiting += islice(part.values(), _MOST_ITEMS)
        elif hasattr(part, "__dict__") and not isinstance(part, type | ModuleType | FunctionType):
            waiting += vars(part).values()
    return found


def seed_hidden(generators: Iterable[Any], seed: int) -> None:
    for number, generator in enumerate(generators):
        seeder = _seeder_of(generator)
        assert seeder is not None, generator
        seeder(mix(seed, number))


def _seeder_of(value: Any) -> Callable[[int], Any] | None:
    """How to seed this generator; None if it is none."""
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if isinstance(value, random.Random):
        return value.seed
    if torch is not None and isinstance(value, torch.Generator):
        manual_seed: Callable[[int], Any] = value.manual_seed
        return manual_seed
    if numpy is not None and isinstance(value, numpy.random.RandomState):
        return lambda seed: value.seed(seed % 2**32)
    if numpy is not None and isinstance(value, numpy.random.Generator):
        bits = value.bit_generator
        return lambda seed: setattr(bits, "state", type(bits)(seed).state)
    return None


class OwnNumbers(Iterator[Any]):
    """An iterator with a separate random number state, seeded with `seed`.

    So it can be repeated up to any position, whatever the script draws in between. Generators on
    devices and those of modules not yet imported are not changed.
    """

    def __init__(self, items: Iterable[Any], seed: int) -> None:
        self._python = random.Random(seed).getstate()
        self._numpy: Any = None
        self._torch: Any = None
        if (numpy := sys.modules.get("numpy")) is not None:
            self._numpy = numpy.random.MT19937(seed)
        if (torch := sys.modules.get("torch")) is not None:
            self._torch = torch.Generator().manual_seed(seed).get_state()
        self._exchange()
        try:
            self._items = iter(items)
        finally:
            self._exchange()

    def __next__(self) -> Any:
        self._exchange()
        try:
            return next(self._items)
        finally:
            self._exchange()

    def _exchange(self) -> None:
        """Swap the state of the global generators with the state kept here."""
        python, self._python = self._python, random.getstate()
        random.setstate(python)
        if self._numpy is not None:
            numpy: Any = sys.modules["numpy"]
            own, self._numpy = self._numpy, numpy.random.get_bit_generator()
            numpy.random.set_bit_generator(own)
        if self._torch is not None:
            import torch

            state, self._torch = self._torch, torch.get_rng_state()
            torch.set_rng_state(state)
