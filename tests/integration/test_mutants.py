"""`make mutants` tells apart what a test notices and what none does, on a core made for it."""

from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.mutants.__main__ import sample
from tests.mutants.judging import Verdicts, judge
from tests.mutants.points import Mutant, mutants

pytestmark = pytest.mark.heavy

CORE = """
class Limit:
    def __init__(self, most: int) -> None:
        self._most = most

    @property
    def is_tight(self) -> bool:
        return self._most < 2

    def admits(self, number: int) -> bool:
        return number <= self._most


def countdown(number: int) -> list[int]:
    found = []
    while number > 0:
        found.append(number)
        number -= 1
    return found


def unproven(number: int) -> int:
    return number * 2
"""
TESTS = """
from limits import Limit, countdown


def test_the_limit_itself_is_admitted():
    assert Limit(3).admits(3)


def test_what_is_far_above_is_tight_is_not_told_from_the_boundary():
    assert not Limit(9).is_tight
    assert Limit(0).is_tight


def test_it_counts_down_to_one():
    assert countdown(2) == [2, 1]
"""
BROKEN = """
from limits import countdown


def test_what_is_not_so():
    assert countdown(1) == []
"""
SETTINGS = "[pytest]\nasyncio_default_fixture_loop_scope = session\n"


@pytest.fixture(scope="module")
def verdicts(tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    root = tmp_path_factory.mktemp("planted")
    (root / "limits.py").write_text(CORE)
    (root / "test_limits.py").write_text(TESTS)
    (root / "pytest.ini").write_text(SETTINGS)
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        return pool.submit(judge, root, root, mutants(root, "limits.py"), 2).result()


def changes(found: tuple[Mutant, ...]) -> set[tuple[str, str]]:
    return {(each.function, each.after) for each in found}


def test_a_mutant_that_a_test_notices_is_killed(verdicts: Verdicts) -> None:
    assert changes(verdicts.killed) == {
        ("Limit.admits", "return number < self._most"),
        ("countdown", "while number >= 0:"),
        ("countdown", "while number > 1:"),
        ("countdown", "number += 1"),
        ("countdown", "number -= 2"),
    }


def test_a_mutant_that_no_test_notices_is_reported(verdicts: Verdicts) -> None:
    assert changes(verdicts.survived) == {
        ("Limit.is_tight", "return self._most <= 2"),
        ("Limit.is_tight", "return self._most < 3"),
        ("unproven", "return number / 2"),
        ("unproven", "return number * 3"),
    }


def test_one_that_never_ends_is_killed(verdicts: Verdicts) -> None:
    assert verdicts.out_of_time == 1


def test_tests_that_fail_without_a_mutant_judge_nothing(tmp_path: Path) -> None:
    (tmp_path / "limits.py").write_text(CORE)
    (tmp_path / "pytest.ini").write_text(SETTINGS)
    (tmp_path / "test_broken.py").write_text(BROKEN)
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
        pytest.raises(RuntimeError, match="without a mutant"),
    ):
        pool.submit(judge, tmp_path, tmp_path, mutants(tmp_path, "limits.py"), 1).result()


def test_a_small_core_is_sampled_whole_and_the_others_equally() -> None:
    def some(core: str, number: int) -> list[Mutant]:
        return [Mutant(core, each, 1, "f", "a", "b") for each in range(number)]

    found = {"large": some("large", 90), "small": some("small", 4), "other": some("other", 50)}
    chosen = sample(found, 24, seed=1)
    assert {core: len(each) for core, each in chosen.items()} == {
        "large": 10,
        "small": 4,
        "other": 10,
    }
    assert sample(found, 24, seed=1) == chosen
    assert sample(found, 24, seed=2) != chosen
