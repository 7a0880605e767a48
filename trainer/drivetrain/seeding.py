"""Which random number generators the script has seeded itself; the others get the run's seed.

A generator that the script seeded, before `drivetrain.run` or after it, keeps its numbers on every
rank. How that is seen: a torch seed below 2**32 was chosen by someone, because an unseeded process
has 64 random bits; numpy forgets the entropy it started with when it is seeded; Python's generator
is compared with its state when this package was imported.
"""

import os
import random
import sys
from collections.abc import Callable, Sequence
from typing import Any

from drivetrain import rng

_MOST_TWISTS = 640  # about 400,000 draws; 10 ms
_Words = Sequence[int]  # the state of a Mersenne Twister, without the position

# How a generator was seeded, as far as it was not the script: the state of python's and numpy's,
# the seed of torch's; and whether a run has seeded python's.
_known: dict[str, Any] = {}


class Seeds:
    """The seed of one run, and which generators it applies to."""

    def __init__(self, wanted: int | None, share: Callable[[Any], Any]) -> None:
        """`wanted`: what the job or the script asks for. `share`: rank 0's value, on all ranks."""
        self.by_script = [name for name, is_scripts in _IS_SCRIPTS.items() if is_scripts()]
        own = sys.modules["torch"].initial_seed() if "torch" in self.by_script else 0
        self.seed = int(share(own if wanted is None else wanted))
        self._seed(self.seed, self.by_script)

    def look_again(self) -> None:
        """What the script has seeded since."""
        self.by_script = [name for name, is_scripts in _IS_SCRIPTS.items() if is_scripts()]

    def part(self, rank: int) -> None:
        """From here on ranks draw different numbers, where the script has not decided that."""
        self.look_again()
        self._seed(rng.mix(self.seed, rank), self.by_script)

    def describe(self) -> str:
        if not self.by_script:
            return f"seed {self.seed}"
        return f"seed {self.seed}; seeded by the script itself: {', '.join(self.by_script)}"

    def _seed(self, seed: int, left_out: Sequence[str]) -> None:
        rng.seed_all(seed, left_out)
        if "python" not in left_out:
            _known.update(python=_python_words(), python_by_run=True)
        if "numpy" not in left_out:
            _known["numpy"] = _numpy_words()
        if "torch" not in left_out:
            _known["torch"] = seed


def remember() -> None:
    """Python's generator is as the process has seeded it: at its start, or after a fork."""
    _known.update(python=_python_words(), python_by_run=False)


def renew() -> None:
    """Seed all generators from the system, as they are in a new process."""
    _known.clear()
    random.seed()
    remember()
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.set_bit_generator(numpy.random.MT19937())
    if (torch := sys.modules.get("torch")) is not None:
        torch.seed()


def _is_python_scripts() -> bool:
    now = _python_words()
    if not _is_drawn_from(_known["python"], now):
        return True
    if _known.get("python_by_run"):
        return False
    # Seeded before this package was imported; most scripts use one number for all generators.
    torch: Any = sys.modules.get("torch")
    return _is_torch_scripts() and _is_drawn_from(_words(random.Random(torch.initial_seed())), now)


def _is_numpy_scripts() -> bool:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None or numpy.random.get_bit_generator().seed_seq is not None:
        return False
    return not _is_drawn_from(_known.get("numpy", ()), _numpy_words())


def _is_torch_scripts() -> bool:
    torch: Any = sys.modules.get("torch")
    return torch is not None and _known.get("torch") != torch.initial_seed() < 2**32


_IS_SCRIPTS = {"python": _is_python_scripts, "numpy": _is_numpy_scripts, "torch": _is_torch_scripts}


def _words(generator: random.Random) -> _Words:
    words: _Words = generator.getstate()[1][:-1]
    return words


def _python_words() -> _Words:
    words: _Words = random.getstate()[1][:-1]
    return words


def _numpy_words() -> _Words:
    numpy: Any = sys.modules.get("numpy")
    if numpy is None:
        return ()
    state = numpy.random.get_bit_generator().state["state"]
    return tuple(map(int, state["key"])) if "key" in state else ()


def _is_drawn_from(before: _Words, now: _Words) -> bool:
    """Whether drawing numbers alone leads from one state to the other."""
    if not before:
        return False
    generator = random.Random()
    generator.setstate((3, (*before, len(before)), None))
    for _ in range(_MOST_TWISTS):
        if _words(generator) == now:
            return True
        generator.getrandbits(32 * len(before))  # each word once: the next state
    return False


remember()
os.register_at_fork(after_in_child=remember)
