"""docs/performance.md is what the results, the notes and the code give."""

from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import page
from benchmarks.catalogue import declared
from benchmarks.measured import digest
from tests.unit.benchmarks.results import result, row

DRAIN = replace(declared("drain"), measures=("core",))


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "cycle.py").write_text("one = 1\n")
    return tmp_path


def test_the_page_is_up_to_date() -> None:
    assert page.PAGE.read_text() == page.page(), "run make gen"


def test_figures_are_marked_once_what_they_measure_has_changed(tree: Path) -> None:
    found = result(digest=digest(tree, DRAIN.measures))
    before = page.section(DRAIN, found, tree)
    (tree / "core" / "cycle.py").write_text("one = 2\n")
    after = page.section(DRAIN, found, tree)
    assert page.OLDER not in before
    assert after == f"{before}\n{page.OLDER}\n"
    (tree / "core" / "cycle.py").write_text("one = 3\n")
    assert page.section(DRAIN, found, tree) == after, "the mark is the same for every change"


def test_a_benchmark_that_was_never_recorded_has_a_section(tree: Path) -> None:
    text = page.section(DRAIN, None, tree)
    assert text.startswith("## Slots kept busy by short jobs: `python -m benchmarks.drain`\n")
    assert "Not recorded yet." in text
    assert page.OLDER not in text


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "| slots held | 99.3 % | 100 % | 0.993 | at least 0.95 |"),
        ({"met": False}, "| slots held | 99.3 % | 100 % | 0.993 | at least 0.95: **not met** |"),
        ({"peer": ""}, "| slots held | 99.3 % |  |  | at least 0.95 |"),
        ({"ratio": 0.00006}, "| slots held | 99.3 % | 100 % | 0.00006 | at least 0.95 |"),
        ({"ratio": 35512.3}, "| slots held | 99.3 % | 100 % | 35,500 | at least 0.95 |"),
        (
            {"remark": "no longer true"},
            "| slots held | 99.3 % | 100 % | 0.993 | at least 0.95; **no longer true** |",
        ),
    ],
)
def test_a_row_says_what_was_found(tree: Path, fields: dict[str, object], line: str) -> None:
    assert line in page.section(DRAIN, result(rows=[row(**fields)]), tree).splitlines()


def test_a_section_says_when_where_and_of_which_code(tree: Path) -> None:
    text = page.section(DRAIN, result(is_dirty=True, is_quick=True), tree)
    assert (
        "Recorded 2026-11-22, commit 7c4dba1e1 with changes, 2 cores, 24 GiB, Linux 6.18, "
        "Python 3.11.7, load 0.5 before, quick." in text
    )


def test_a_check_fails_only_where_the_page_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["page", "--check"])
    monkeypatch.setattr(page, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(page, "NAMES", ("drain",))
    monkeypatch.setattr(page, "read", lambda name: result(digest="1" * 64))
    page.PAGE.write_text(page.page())
    assert page.main() == 0
    assert "older than the code: drain (recorded 2026-11-22, 7c4dba1e1)" in capsys.readouterr().out
    page.PAGE.write_text(page.page() + "typed by hand\n")
    assert page.main() == 1
    assert "run make gen" in capsys.readouterr().out
