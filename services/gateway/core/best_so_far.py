"""The line "best so far" over the numbers of a study's trials."""

from collections.abc import Iterable


def best_so_far(
    trials: Iterable[tuple[int, float]], *, is_maximized: bool
) -> list[tuple[int, float]]:
    """The trials that are better than every one with a lower number, by number.

    Trials end in another order than that of their numbers, so one that was the best when it ended
    need not be among them.
    """
    line: list[tuple[int, float]] = []
    for number, value in sorted(set(trials)):
        if not line or (value > line[-1][1] if is_maximized else value < line[-1][1]):
            line.append((number, value))
    return line
