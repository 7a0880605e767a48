"""An estimate from history: the median of earlier jobs, and eight in ten of them."""

from services.cost.core.history import Taken, taken


def test_of_many_jobs() -> None:
    assert taken([*range(101)]) == Taken(101, 10, 50, 90)
    assert taken([*range(101)][::-1]) == Taken(101, 10, 50, 90)


def test_of_few_jobs_the_range_is_all_of_them() -> None:
    assert taken([7]) == Taken(1, 7, 7, 7)
    assert taken([5, 3, 9]) == Taken(3, 3, 5, 9)
    assert taken([]) is None
