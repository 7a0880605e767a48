"""No benchmark is forgotten, and each declares what it measures."""

import ast

import pytest

from benchmarks.catalogue import NAMES, ROOT, declared

# Programs that are no benchmarks.
OTHERS = {"page", "run"}


def test_every_program_is_in_the_catalogue() -> None:
    programs = {
        path.stem
        for path in (ROOT / "benchmarks").glob("*.py")
        for statement in ast.parse(path.read_text()).body
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'"
    }
    assert programs - OTHERS == set(NAMES)
    assert len(set(NAMES)) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_declares_paths_that_exist(name: str) -> None:
    found = declared(name)
    assert found.title
    assert found.notes
    assert found.measures
    assert [path for path in found.measures if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_records_under_its_own_name(name: str) -> None:
    calls = [
        call.args[0].value
        for call in ast.walk(ast.parse((ROOT / "benchmarks" / f"{name}.py").read_text()))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("options", "options_of")
        and isinstance(call.args[0], ast.Constant)
    ]
    assert calls == [name]
