"""Cases of one test of which `make test` runs the first, and `make test-all` every one.

For tests on a running platform whose cases handler tests prove one by one: the first shows that
the path to the rule is there.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import pytest


def variants(cases: Iterable[Any]) -> list[Any]:
    """`cases` as `parametrize` takes them, with their ids; all but the first are heavy."""
    first, *others = cases
    return [first, *(_heavy(case) for case in others)]


def _heavy(case: Any) -> Any:
    if isinstance(case, str) or not isinstance(case, Sequence):
        return pytest.param(case, marks=pytest.mark.heavy)
    marks = getattr(case, "marks", ())
    values = getattr(case, "values", case)
    return pytest.param(*values, id=getattr(case, "id", None), marks=[*marks, pytest.mark.heavy])
