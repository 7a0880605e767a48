"""The table of heavy suites in CONTRIBUTING.md: what it names exists, and it is what is run."""

import re

import pytest

from scripts.suites import GUIDE, ROOT, rows, suites_of

TABLE = rows(GUIDE.read_text())
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_path_and_every_target_of_the_table_exists() -> None:
    paths = [path for named, _ in TABLE for path in named]
    assert [path for path in paths if not (ROOT / path).exists()] == []
    commands = {command for _, named in TABLE for command in named}
    assert {command.partition(" ")[0] for command in commands} == {"make"}
    assert {command.split()[1] for command in commands} <= TARGETS


@pytest.mark.parametrize("folder", ["deploy", "trainer", "services"])
def test_every_part_of_the_product_asks_for_a_suite(folder: str) -> None:
    parts = [path for path in (ROOT / folder).iterdir() if path.is_dir() and path.name[0] != "_"]
    modules = {f"{path.relative_to(ROOT)}/any.py" for path in parts if any(path.rglob("*.py"))}
    assert [module for module in sorted(modules) if not suites_of([module], TABLE)] == []


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        ([], ()),
        (["docs/guides/files.md"], ()),
        (["a/b.py"], ("make x",)),
        (["b/c.py", "a/b.py"], ("make x", "make y")),
        (["bc.py"], ()),
    ],
    ids=["nothing", "in no row", "one row", "each suite once", "a longer name"],
)
def test_a_change_asks_for_the_suites_of_its_rows(
    changed: list[str], want: tuple[str, ...]
) -> None:
    table = rows(
        "## Heavy suites\n\n| a change to | run |\n|---|---|\n"
        "| `a/` | `make x` |\n| `b/` | `make x`, `make y` |\n\n## After\n| `bc` | `make z` |\n"
    )
    assert suites_of(changed, table) == want
