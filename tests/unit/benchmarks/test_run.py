"""What the program that runs all benchmarks calls a failure."""

import sys
from pathlib import Path

import pytest

from benchmarks import recording, run
from benchmarks.catalogue import NAMES
from tests.unit.benchmarks.results import result


def program(text: str) -> list[str]:
    """Python that has the path of its result as `path`."""
    return [sys.executable, "-c", f"import pathlib, sys; path = pathlib.Path(sys.argv[-1])\n{text}"]


def writing(content: str) -> list[str]:
    return program(f"path.write_text({content!r})")


def test_a_benchmark_with_rows_ran_whatever_they_say() -> None:
    outcome = run.run_one("drain", writing(result().to_json()), is_quick=True)
    assert (outcome.state, outcome.text) == ("ran", "1 rows")


@pytest.mark.parametrize(
    ("ends", "reason"),
    [
        (program("print('before'); sys.exit('no such table')"), "before\nno such table"),
        (program("print('no table')"), "no table\n\nno rows"),
        (writing("{}"), "no rows"),
        (writing(result(benchmark="idle").to_json()), "no rows"),
    ],
)
def test_an_error_or_no_rows_is_a_failure(ends: list[str], reason: str) -> None:
    outcome = run.run_one("drain", ends, is_quick=True)
    assert outcome.state == "failed"
    assert reason in outcome.text


def test_a_benchmark_that_does_not_end_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "QUICK_SECONDS", 0.5)
    outcome = run.run_one("drain", program("sys.stdin.read() or __import__('time').sleep(600)"),
                          is_quick=True)  # fmt: skip
    assert outcome.state == "failed"
    assert "not done after" in outcome.text


def test_what_a_benchmark_lacks_is_shown() -> None:
    ends = program("from benchmarks.report import skip; skip('no Chromium')")
    outcome = run.run_one("pages", ends, is_quick=True)
    assert (outcome.state, outcome.text) == ("skipped", "no Chromium")


@pytest.mark.parametrize("is_quick", [True, False])
def test_only_whole_runs_are_recorded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_quick: bool
) -> None:
    monkeypatch.setattr(recording, "RESULTS", tmp_path / "results")
    text = result().to_json()
    run.run_one("drain", writing(text), is_quick=is_quick)
    found = [path.read_text() for path in (tmp_path / "results").glob("*")]
    assert found == ([] if is_quick else [text])


def test_rows_of_a_whole_run_are_recorded_also_where_it_then_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(recording, "RESULTS", tmp_path)
    ends = program(f"path.write_text({result().to_json()!r}); sys.exit(1)")
    assert run.run_one("drain", ends, is_quick=False).state == "failed"
    assert recording.read("drain") == result()


def test_all_are_run_to_the_end_and_the_failed_are_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    programs = {"idle": program("sys.exit(3)")}
    monkeypatch.setattr(
        run, "command", lambda name: programs.get(name, writing(result(benchmark=name).to_json()))
    )
    monkeypatch.setattr("sys.argv", ["run", "--quick", "drain", "idle", "pages"])
    assert run.main() == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines if "ran" in line] == ["drain", "pages"]
    assert lines[-1].startswith("3 benchmarks in ")
    assert lines[-1].endswith("failed: idle")


def test_an_unknown_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["run", "drian"])
    with pytest.raises(SystemExit, match="2"):
        run.main()
    assert "drian" not in NAMES
