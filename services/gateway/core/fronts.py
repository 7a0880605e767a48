"""The Pareto front of a study with several objectives.

In: the trials' values and the goals. Out: the numbers of the trials that no other one beats in all
objectives. Pure.
"""

from collections.abc import Mapping, Sequence


def pareto_front(values: Mapping[int, Sequence[float]], goals: Sequence[str]) -> list[int]:
    """Trials (by number) that are at least as good as each other one in some objective."""
    signs = [-1.0 if goal == "maximize" else 1.0 for goal in goals]
    losses = {
        number: tuple(sign * value for sign, value in zip(signs, of, strict=True))
        for number, of in values.items()
    }
    front: list[tuple[int, tuple[float, ...]]] = []
    # In this order nothing later can beat what is already in the front.
    for number, loss in sorted(losses.items(), key=lambda item: (item[1], item[0])):
        if not any(_beats(other, loss) for _, other in front):
            front.append((number, loss))
    return sorted(number for number, _ in front)


def _beats(one: Sequence[float], other: Sequence[float]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
