"""The loss that `jobs/strategy.py` logs."""

from collections.abc import Mapping


def loss_at(step: int, point: Mapping[str, float]) -> float:
    a, b = point["a"], point["b"]
    return (a - 0.3) ** 2 + (b - 0.7) ** 2 / 2 + (0.2 + a) / step
