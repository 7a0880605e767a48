"""Files of tensors, held against the safetensors library: each reads what the other writes."""

import pytest
import torch
from safetensors.torch import load, save

from drivetrain import tensor_files
from drivetrain.errors import CheckpointMismatch
from drivetrain.tensor_files import DTYPES, TensorFile


def make_tensors() -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    tensors = {
        name: torch.randint(0, 2, (3, 5), dtype=torch.uint8, generator=generator)
        .repeat(1, 8)
        .view(getattr(torch, name))
        for name in DTYPES
    }
    return tensors | {
        "größer": torch.randn(4, 3, generator=generator).t(),
        "single": torch.tensor(7),
        "empty": torch.zeros(2, 0),
        "larger than a piece": torch.arange(tensor_files.PIECE_BYTES // 4 + 1),
    }


def assert_equal(found: dict[str, torch.Tensor], wanted: dict[str, torch.Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert (found[name].dtype, found[name].shape) == (tensor.dtype, tensor.shape), name
        assert bytes_of(found[name]) == bytes_of(tensor), name


def bytes_of(tensor: torch.Tensor) -> bytes:
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def test_the_library_reads_every_type_that_is_written() -> None:
    file = TensorFile(make_tensors())
    data = b"".join(file)
    assert len(data) == file.size_bytes
    assert b"".join(file) == data  # a second time
    assert_equal(load(data), make_tensors())


@pytest.mark.parametrize("piece", [1, 7, 1 << 20])
def test_what_the_library_writes_is_read_in_pieces_of_any_size(piece: int) -> None:
    tensors = {name: value.contiguous() for name, value in make_tensors().items()}
    if piece < 1000:
        del tensors["larger than a piece"]
    data = save(tensors, {"written_by": "the library"})
    pieces = (data[start : start + piece] for start in range(0, len(data), piece))
    assert_equal(tensor_files.read(pieces), tensors)


def test_pieces_are_the_memory_of_the_tensors() -> None:
    tensor = torch.zeros(1000)
    pieces = list(TensorFile({"x": tensor}))
    tensor.fill_(1.0)
    assert bytes(pieces[-1]) == bytes_of(torch.ones(1000))


def test_no_tensors_are_a_file_too() -> None:
    data = b"".join(TensorFile({}))
    assert load(data) == {}
    assert tensor_files.read([data]) == {}


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda data: data[:-1], id="truncated"),
        pytest.param(lambda data: data[:4], id="truncated in its length"),
        pytest.param(lambda data: data + b"x", id="with a byte too many"),
        pytest.param(lambda data: b"\xff" * 8 + data[8:], id="with a header without end"),
        pytest.param(lambda data: data.replace(b"F32", b"F99"), id="of an unknown type"),
        pytest.param(lambda data: data.replace(b'"shape":[4]', b'"shape":[5]'), id="misfit"),
        pytest.param(lambda data: data.replace(b"{", b"[", 1), id="with a broken header"),
    ],
)
def test_what_is_no_such_file_is_refused(damage) -> None:
    data = b"".join(TensorFile({"x": torch.zeros(4)}))
    with pytest.raises(CheckpointMismatch, match="safetensors file"):
        tensor_files.read([damage(data)])
