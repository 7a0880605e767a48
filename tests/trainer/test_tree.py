"""State as JSON and tensors, decoded to equal values."""

import json
import math
import random
from collections import Counter, OrderedDict, namedtuple

import numpy as np
import pytest
import torch
from torch import nn

from drivetrain import rng, tensor_files, tree
from drivetrain.errors import NotStorable


def through_a_checkpoint(value):
    tensors: tree.Tensors = {}
    document = json.dumps(tree.encode(value, "state", tensors))
    stored = map(bytes, tensor_files.TensorFile(tree.copied(tensors)))
    return tree.decode(json.loads(document), tensor_files.read(stored))


@pytest.mark.parametrize(
    "value",
    [
        None,
        {"a": [1, 2.5, "x", True, None], "b": {"c": ()}},
        (1, (2, [3, (4,)])),
        {0: "zero", 7: {"$tensor": "no tag"}},
        {"$dict": 1},
        OrderedDict(b=1, a=2),
        Counter({30: 1, 60: 2}),
        b"\x00\xff",
        math.inf,
        -0.0,
        2**80,
        1e-320,
    ],
    ids=repr,
)
def test_values_are_restored(value) -> None:
    assert through_a_checkpoint(value) == value


def test_nan_is_restored() -> None:
    assert math.isnan(through_a_checkpoint([math.nan])[0])


@pytest.mark.parametrize(
    "tensor",
    [
        torch.randn(3, 4),
        torch.randn(4, 3).t(),
        torch.tensor(5),
        torch.zeros(0),
        torch.randn(4).to(torch.bfloat16),
        torch.tensor([True, False]),
        torch.arange(6, dtype=torch.uint8)[::2],
    ],
    ids=lambda tensor: f"{tensor.dtype} {tuple(tensor.shape)}",
)
def test_tensors_are_restored_bit_for_bit(tensor) -> None:
    back = through_a_checkpoint({"x": tensor})["x"]
    assert back.dtype == tensor.dtype
    assert torch.equal(back, tensor)


def test_arrays_are_restored() -> None:
    value = {"array": np.arange(4, dtype=np.uint32), "number": np.float32(1.5)}
    back = through_a_checkpoint(value)
    assert back["array"].dtype == np.uint32
    assert back["array"].tolist() == [0, 1, 2, 3]
    assert back["number"] == np.float32(1.5)


def test_tensors_are_named_by_their_path_and_copied_only_when_asked() -> None:
    weight = torch.ones(2)
    tensors: tree.Tensors = {}
    tree.encode({"a": weight, "b": {"a": weight}}, "model", tensors)
    copied = tree.copied(tensors)
    weight.zero_()
    for found, wanted in ((tensors, [0, 0]), (copied, [1, 1])):
        assert {name: tensor.tolist() for name, tensor in found.items()} == {
            "model.a": wanted,
            "model.b.a": wanted,
        }


def test_two_paths_with_one_name_stay_two_tensors() -> None:
    value = {"a.b": torch.ones(1), "a": {"b": torch.zeros(1)}}
    back = through_a_checkpoint(value)
    assert (back["a.b"].item(), back["a"]["b"].item()) == (1, 0)


def test_the_versions_of_modules_are_restored() -> None:
    state = nn.BatchNorm1d(3).state_dict()
    assert through_a_checkpoint(state)._metadata == state._metadata


Point = namedtuple("Point", "x y")


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"a": [1, {2, 3}]}, "state.a.1"),
        ({"a": lambda: 0}, "state.a"),
        ({"a": Point(1, 2)}, "state.a"),
        ({(1, 2): 0}, "state"),
        ({"a": torch.randn(2, dtype=torch.complex64)}, "state.a"),
        ({"a": np.array(["x"])}, "state.a"),
        ({"a": np.arange(2, dtype=">i4")}, "state.a"),
        ({"a": torch.zeros(2, dtype=torch.float8_e8m0fnu)}, "state.a"),
        ({"a": torch.zeros(2, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)}, "state.a"),
        ({"a": torch.zeros(2, device="meta")}, "state.a"),
        ({"a": torch.eye(2).to_sparse()}, "state.a"),
    ],
    ids=[
        "set",
        "function",
        "named tuple",
        "tuple as key",
        "complex tensor",
        "array of strings",
        "bytes in another order",
        "float8 of exponents",
        "float4",
        "meta tensor",
        "sparse tensor",
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_path(value, path) -> None:
    with pytest.raises(NotStorable, match=f"^{path}: "):
        tree.encode(value, "state", {})


def test_random_numbers_continue_where_they_stopped() -> None:
    def draw() -> tuple[float, float, float]:
        return random.random(), np.random.rand(), torch.rand(1).item()

    rng.seed_all(3)
    draw()
    state = rng.get_state()
    wanted = [draw(), draw()]
    rng.set_state(through_a_checkpoint(state))
    assert [draw(), draw()] == wanted


def test_mixed_seeds_of_neighbours_differ() -> None:
    seeds = {
        rng.mix(seed, epoch, rank) for seed in range(8) for epoch in range(8) for rank in (0, 1)
    }
    assert len(seeds) == 128
    assert all(0 <= seed < 2**63 for seed in seeds)
