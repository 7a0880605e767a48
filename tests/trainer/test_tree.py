"""State as JSON and tensors, decoded to equal values."""

import json
import math
import random
from collections import Counter, OrderedDict, deque, namedtuple

import numpy as np
import pytest
import torch
from torch import nn

from drivetrain import rng, tensor_files, tree
from drivetrain.errors import NotStorable


def through_a_checkpoint(value):
    collected = tree.Collected()
    document = json.dumps(tree.encode(value, "state", collected))
    stored = map(bytes, tensor_files.TensorFile(tree.copied(collected.tensors)))
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
        deque([1, (2,)], maxlen=3),
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
    weight, other = torch.ones(2), torch.ones(2)
    collected = tree.Collected()
    tree.encode({"a": weight, "b": {"a": other}}, "model", collected)
    tensors = collected.tensors
    copied = tree.copied(tensors)
    for one in (weight, other):
        one.zero_()
    for found, wanted in ((tensors, [0, 0]), (copied, [1, 1])):
        assert {name: tensor.tolist() for name, tensor in found.items()} == {
            "model.a": wanted,
            "model.b.a": wanted,
        }


def test_tied_weights_are_stored_once_and_restored_for_each_name() -> None:
    model = nn.Sequential(nn.Linear(50, 40, bias=False), nn.Linear(50, 40, bias=False))
    model[1].weight = model[0].weight
    state = {**model.state_dict(), "part": model[0].weight[:1], "none": torch.ones(0)}
    collected = tree.Collected()
    tree.encode(state, "model", collected)
    assert sorted(collected.tensors) == ["model.0.weight", "model.none", "model.part"]
    back = through_a_checkpoint(state)
    assert list(back) == list(state)
    for name, tensor in state.items():
        assert torch.equal(back[name], tensor)


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
        tree.encode(value, "state", tree.Collected())


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
