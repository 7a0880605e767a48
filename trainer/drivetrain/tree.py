"""State dicts as JSON plus tensors, without pickle, and decoded to equal values.

Input: nested dicts, lists, tuples and scalars with tensors and arrays as leaves. Output: a JSON
tree in which every tensor is named by its path (`model.conv.weight`), and the tensors by these
names: not copies, but the memory of the state itself. Names that share their memory (tied weights)
are one tensor, stored once. A value that cannot be written in this form
is refused with its path.
"""

import base64
import math
import sys
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from drivetrain.errors import NotStorable
from drivetrain.tensor_files import Tensors, dtype_name

if TYPE_CHECKING:
    import numpy
    import torch


class Collected:
    """The tensors of a state, by the first of their names."""

    def __init__(self) -> None:
        self.tensors: Tensors = {}
        self._names: dict[tuple[Any, ...], str] = {}  # by memory

    def add(self, tensor: "torch.Tensor", path: str) -> str:
        """The name under which it is stored."""
        tensor = tensor.detach().resolve_neg()
        if tensor.numel() == 0:
            return self._add_new(tensor, path)
        # The memory of a tensor that is held here cannot be another one's meanwhile.
        place = (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())
        if place not in self._names:
            self._names[place] = self._add_new(tensor, path)
        return self._names[place]

    def _add_new(self, tensor: "torch.Tensor", path: str) -> str:
        name, number = path, 1
        while name in self.tensors:
            number += 1
            name = f"{path}#{number}"
        self.tensors[name] = tensor
        return name


def encode(value: Any, path: str, tensors: Collected) -> Any:
    """The JSON tree of `value`; its tensors are added to `tensors`.

    Raises NotStorable, and ValueError for a lazy module that has not seen a batch yet.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if type(value) is int:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else {"$float": repr(value)}
    if isinstance(value, bytes):
        return {"$bytes": base64.b64encode(value).decode()}
    if isinstance(value, Mapping):
        return _encode_mapping(value, path, tensors)
    if type(value) is list:
        return [encode(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]
    if type(value) is tuple:
        return {"$tuple": [encode(item, f"{path}.{i}", tensors) for i, item in enumerate(value)]}
    if type(value) is deque:
        return {"$deque": [value.maxlen, encode(list(value), path, tensors)]}
    return _encode_leaf(value, path, tensors)


def copied(tensors: Tensors) -> Tensors:
    """Copies on the CPU, so that training may change the originals."""
    import torch

    return {
        name: tensor.to("cpu", copy=True, memory_format=torch.contiguous_format).contiguous()
        for name, tensor in tensors.items()
    }


@contextmanager
def deep_reading() -> Iterator[None]:
    """Each level takes more calls to be read than it took to be written."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(5 * limit)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def decode(tree: Any, tensors: Tensors) -> Any:
    """The value that was encoded."""
    if isinstance(tree, list):
        return [decode(item, tensors) for item in tree]
    if not isinstance(tree, dict):
        return tree
    tag = next(iter(tree), "")
    if not tag.startswith("$"):
        return {name: decode(item, tensors) for name, item in tree.items()}
    return _DECODERS[tag](tree[tag], tensors)


def _encode_mapping(value: Mapping[Any, Any], path: str, tensors: Collected) -> Any:
    if type(value) not in (dict, OrderedDict, Counter):
        raise _refusal(value, path)
    for key in value:
        if not isinstance(key, str | int):
            raise NotStorable(f"{path}: the key {key!r:.80} is neither a string nor a number")
    items = {key: encode(item, f"{path}.{key}", tensors) for key, item in value.items()}
    is_plain = type(value) is dict and all(
        isinstance(key, str) and not key.startswith("$") for key in value
    )
    if is_plain:
        return items
    pairs = [[key, item] for key, item in items.items()]
    metadata = getattr(value, "_metadata", None)
    if metadata is not None:  # versions of torch's modules, without which old layouts are assumed
        return {"$state": [pairs, encode(dict(metadata), f"{path}._metadata", tensors)]}
    return {"$counter" if isinstance(value, Counter) else "$dict": pairs}


def _encode_leaf(value: Any, path: str, tensors: Collected) -> Any:
    import numpy
    import torch

    if isinstance(value, torch.Tensor):
        if flaw := _flaw_of(value):
            raise NotStorable(f"{path}: {flaw}")
        return {"$tensor": tensors.add(value, path)}
    if isinstance(value, numpy.ndarray) and _is_numeric(value.dtype):
        # Torch wants writable memory without negative strides.
        is_usable = value.flags.c_contiguous and value.flags.writeable
        array = torch.from_numpy(value if is_usable else value.copy())
        return {"$array": tensors.add(array, path)}
    if isinstance(value, numpy.generic) and _is_numeric(value.dtype):
        array = torch.from_numpy(numpy.asarray(value).reshape(1).copy())
        return {"$scalar": tensors.add(array, path)}
    raise _refusal(value, path)


def _is_numeric(dtype: "numpy.dtype[Any]") -> bool:
    return dtype.kind in "biuf" and dtype.itemsize <= 8 and dtype.isnative


def _flaw_of(tensor: "torch.Tensor") -> str | None:
    """Why this tensor cannot be stored, with the fix; None if it can."""
    kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
    if type(tensor).__name__ == "DTensor":
        return (
            "it is a DTensor, whose parts are on several ranks (FSDP2, tensor parallelism). "
            "Checkpoints cannot hold these yet: train with run.parallel(model), which uses DDP, or "
            "leave it out of run.resume(...) and save it with torch.distributed.checkpoint."
        )
    if hasattr(type(tensor), "__tensor_flatten__"):
        return f"a checkpoint cannot hold a {kind}. Keep its plain tensors in the state."
    if tensor.is_meta:
        return "it is on the meta device and has no values: give it values before run.resume(...)"
    if str(tensor.layout) != "torch.strided":
        return f"a checkpoint cannot hold a {kind} of {tensor.layout}. Store tensor.to_dense()."
    if dtype_name(tensor.dtype) is None:
        return (
            f"a checkpoint cannot hold a {kind} of {tensor.dtype}. Store tensor.view(torch.uint8), "
            "its bytes, in state_dict and view them as this type in load_state_dict."
        )
    return None


def _refusal(value: Any, path: str) -> NotStorable:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return NotStorable(
        f"{path}: a checkpoint cannot hold a {kind}. Keep tensors, arrays, numbers, strings, lists,"
        " tuples and dicts in the state, or leave the object out of run.resume(...)."
    )


def _pairs(pairs: Any, tensors: Tensors) -> dict[Any, Any]:
    return {key: decode(item, tensors) for key, item in pairs}


def _state(parts: Any, tensors: Tensors) -> Any:
    state: Any = OrderedDict(_pairs(parts[0], tensors))
    state._metadata = OrderedDict(decode(parts[1], tensors))
    return state


_DECODERS: dict[str, Any] = {
    "$float": lambda text, _: float(text),
    "$bytes": lambda text, _: base64.b64decode(text),
    "$tuple": lambda items, tensors: tuple(decode(item, tensors) for item in items),
    "$deque": lambda parts, tensors: deque(decode(parts[1], tensors), parts[0]),
    "$dict": _pairs,
    "$counter": lambda pairs, tensors: Counter(_pairs(pairs, tensors)),
    "$state": _state,
    "$tensor": lambda name, tensors: tensors[name],
    "$array": lambda name, tensors: tensors[name].numpy(),
    "$scalar": lambda name, tensors: tensors[name].numpy()[0],
}
