"""Holds one value of every kind that a checkpoint can store.

The first run saves a checkpoint at step 1 and exits before it is complete. The second restores it
and compares every value, so it also shows whether a checkpoint of an older version can be restored.
"""

import math
import os
import time
from collections import Counter, OrderedDict
from typing import Any

import numpy
import torch
from torch import nn

import drivetrain

DTYPES = (
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
)


class Values:
    """A thing of the script's own, with the state it was given last."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        return self.state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.state = state


def make_values() -> dict[str, Any]:
    return {
        "tensors": {str(dtype): torch.arange(6).reshape(2, 3).to(dtype) for dtype in DTYPES},
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "single": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "array": numpy.arange(4, dtype=numpy.float32).reshape(2, 2),
        "scalar": numpy.float64(0.1),
        "numbers": [1, 2**80, -0.5, math.inf, True, None],
        "text": "größer",
        "bytes": b"\x00\xff",
        "tuple": (1, [2, (3,)]),
        "keys": {1: "one", "$tag": "two"},
        "counter": Counter("aab"),
        "ordered": OrderedDict(b=1, a=2),
    }


def assert_equal(found: Any, wanted: Any, path: str) -> None:
    assert type(found) is type(wanted) or isinstance(wanted, OrderedDict), path
    if isinstance(wanted, torch.Tensor):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), path
        assert torch.equal(found.float(), wanted.float()), path
    elif isinstance(wanted, numpy.ndarray):
        assert found.dtype == wanted.dtype, path
        assert numpy.array_equal(found, wanted), path
    elif isinstance(wanted, dict):
        assert list(found) == list(wanted), path
        for key in wanted:
            assert_equal(found[key], wanted[key], f"{path}.{key}")
    else:
        assert found == wanted, path


def build(value: float) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            parameter.fill_(value + number)
            parameter.grad = torch.full_like(parameter, value)
    return model, optimizer


def main() -> None:
    with drivetrain.run(max_steps=2, checkpoint_every_steps=1) as run:
        model, optimizer = build(0.0)
        values = Values()
        is_resumed = run.resume(model=model, optimizer=optimizer, values=values)
        wanted_model, wanted_optimizer = build(3.0)
        wanted_optimizer.step()
        if is_resumed:
            assert run.step == 1
            assert_equal(values.state, make_values(), "values")
            assert_equal(model.state_dict(), wanted_model.state_dict(), "model")
            assert_equal(optimizer.state_dict(), wanted_optimizer.state_dict(), "optimizer")
            print("everything is restored", flush=True)
            return
        for _ in run.steps():
            if run.step == 2:
                while run._checkpointer.is_saving:
                    time.sleep(0.001)
                os._exit(1)
            model.load_state_dict(wanted_model.state_dict())
            optimizer.load_state_dict(wanted_optimizer.state_dict())
            values.state = make_values()


if __name__ == "__main__":
    main()
