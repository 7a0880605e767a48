"""Tensors as a safetensors file, in pieces: never a copy of the whole.

Output of `TensorFile`: the bytes of the file, each piece a view of a tensor's own memory. Input of
`read`: such pieces of any size. The format (https://github.com/huggingface/safetensors#format) is 8
bytes with the length of the header, the header as JSON, and the data without gaps. The library
itself is not used: it needs the whole file in memory, once more on reading.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from drivetrain.errors import CheckpointMismatch

if TYPE_CHECKING:
    import torch

Tensors = dict[str, "torch.Tensor"]
PIECE_BYTES = 4 * 1024 * 1024
_MAX_HEADER_BYTES = 512 * 1024 * 1024
_ALIGNMENT = 8
# Names in the file by names in torch. What is missing here is refused before training.
DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "bfloat16": "BF16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e4m3fnuz": "F8_E4M3FNUZ",
    "float8_e5m2": "F8_E5M2",
    "float8_e5m2fnuz": "F8_E5M2FNUZ",
}
_TORCH_NAMES = {name: torch_name for torch_name, name in DTYPES.items()}


def dtype_name(dtype: "torch.dtype") -> str | None:
    """The name of this type in a file; None if a file cannot hold it."""
    return DTYPES.get(str(dtype).removeprefix("torch."))


class TensorFile:
    """The file of these tensors. Iterating gives its pieces, each time from the beginning.

    A tensor on a device is copied to the CPU when its turn comes. The tensors must not change
    between the first piece and the last. `metadata`: texts about the file, for other programs.
    """

    def __init__(self, tensors: Tensors, metadata: Mapping[str, str] | None = None) -> None:
        # The widest first, so that every tensor is aligned, as the library does.
        self._tensors = sorted(tensors.items(), key=lambda item: -item[1].element_size())
        header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
        end = 0
        for name, tensor in self._tensors:
            start, end = end, end + tensor.numel() * tensor.element_size()
            header[name] = {
                "dtype": dtype_name(tensor.dtype),
                "shape": list(tensor.shape),
                "data_offsets": [start, end],
            }
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % _ALIGNMENT)
        self._header = len(text).to_bytes(8, "little") + text
        self.size_bytes = len(self._header) + end

    def __iter__(self) -> Iterator[memoryview]:
        yield memoryview(self._header)
        for _, tensor in self._tensors:
            view = _bytes_of(tensor.detach().cpu().contiguous())
            for start in range(0, len(view), PIECE_BYTES):
                yield view[start : start + PIECE_BYTES]


def read(pieces: Iterable[bytes]) -> Tensors:
    """The tensors of a file, each filled as its bytes arrive. All pieces are consumed.

    Raises CheckpointMismatch for what is no such file. Sizes in the header are believed, so read
    only files whose hash was verified.
    """
    source = _Source(pieces)
    length = int.from_bytes(source.take(8), "little")
    if length > _MAX_HEADER_BYTES:
        raise CheckpointMismatch(f"not a safetensors file: its header has {length:,} bytes")
    try:
        header = json.loads(source.take(length))
        header.pop("__metadata__", None)
        entries = sorted(header.items(), key=lambda item: item[1]["data_offsets"])
        tensors = {name: _read_tensor(entry, source) for name, entry in entries}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointMismatch(f"not a readable safetensors file: {error!r}") from error
    source.exhaust()
    return tensors


def _read_tensor(entry: Any, source: "_Source") -> "torch.Tensor":
    import torch

    start, end = entry["data_offsets"]
    dtype = getattr(torch, _TORCH_NAMES[entry["dtype"]])
    tensor = torch.empty(entry["shape"], dtype=dtype)
    view = _bytes_of(tensor)
    if len(view) != end - start:
        raise ValueError(f"{entry['shape']} of {entry['dtype']} in {end - start} bytes")
    source.fill(view)
    return tensor


def _bytes_of(tensor: "torch.Tensor") -> memoryview:
    """The memory of a contiguous tensor on the CPU."""
    import torch

    return tensor.reshape(-1).view(torch.uint8).numpy().data


class _Source:
    """A stream of pieces, read by length."""

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self._rest = memoryview(b"")

    def fill(self, target: memoryview) -> None:
        done = 0
        while done < len(target):
            if not len(self._rest):
                piece = next(self._pieces, None)
                if piece is None:
                    raise CheckpointMismatch("the safetensors file ends too early")
                self._rest = memoryview(piece)
            part = self._rest[: len(target) - done]
            target[done : done + len(part)] = part
            self._rest = self._rest[len(part) :]
            done += len(part)

    def take(self, length: int) -> bytes:
        data = bytearray(length)
        self.fill(memoryview(data))
        return bytes(data)

    def exhaust(self) -> None:
        """To the end, so that a hash of the pieces covers the whole file."""
        if len(self._rest) or any(len(piece) for piece in self._pieces):
            raise CheckpointMismatch("the safetensors file has more bytes than its header says")
