"""Whether several ranks train on different data: they compare their first batch.

Input: the batches of a pass. Output: the same, or an error on all ranks that names the fix. A data
loader without a distributed sampler is refused before (`loading`); this is about generators, lists
and iterable data sets, which the script may or may not have divided itself.
"""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from drivetrain.errors import MissingDistributedSampler
from drivetrain.parallel import World

_NOTHING = object()


def require_divided(batches: Iterator[Any], world: World) -> Iterator[Any]:
    """The same batches. Raises before the first step if all ranks have the same first one."""
    first = next(batches, _NOTHING)
    number = 0 if first is _NOTHING else fingerprint(first)
    highest, lowest = world.largest([number, -number])
    if number and highest == -lowest:
        raise MissingDistributedSampler(
            f"{world.size} ranks would all train on the same data, their first batches are equal."
            " Give each rank its part: batches[run.rank::run.world_size] of a list; in a generator"
            " or an IterableDataset, skip what belongs to other ranks."
        )
    if first is not _NOTHING:
        yield first
        yield from batches


def fingerprint(batch: Any) -> int:
    """A number that differs for other data; 0 for a batch without tensors and arrays."""
    import numpy
    import torch

    digest = hashlib.sha256()
    is_empty = True
    waiting = [batch]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Mapping):
            waiting += part.values()
        elif isinstance(part, list | tuple):
            waiting += part
        elif isinstance(part, torch.Tensor | numpy.ndarray):
            is_empty = False
            array = part.detach().double().cpu() if isinstance(part, torch.Tensor) else part
            digest.update(numpy.ascontiguousarray(array).tobytes())
    return 0 if is_empty else int.from_bytes(digest.digest()[:7], "big") + 1
