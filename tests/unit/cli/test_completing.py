"""What Tab offers, and that it never waits for the platform; the examples of the help."""

import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest

from drivetrain.cli import completing
from drivetrain.cli.main import app
from drivetrain.cli.names import JOB
from tests.unit.cli.conftest import FakePlatform, RunCli
from tests.unit.cli.test_submit import JOB_ID, make_job


def verbs(group: Any = None, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every verb with its path."""
    from typer.main import get_command

    group = group or get_command(app)
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from verbs(command, (*path, name))
        else:
            yield (*path, name), command


@pytest.mark.parametrize(
    ("path", "verb"), [pytest.param(*one, id=" ".join(one[0])) for one in verbs()]
)
def test_the_help_of_a_verb_has_an_example_that_it_accepts(
    path: tuple[str, ...], verb: Any
) -> None:
    program, *words = shlex.split((verb.epilog or "").removeprefix("Example: "))
    assert (program, tuple(words[: len(path)])) == ("drivetrain", path)
    verb.make_context(path[-1], words[len(path) :])  # raises for wrong usage


def test_names_are_offered_once_and_ids_where_one_is_begun() -> None:
    items = [
        {"job_id": JOB_ID, "name": "digits", "state": "running"},
        {"job_id": "job_" + "b" * 26, "name": "digits", "state": "failed"},
        {"job_id": "job_" + "c" * 26, "name": "with space", "state": "failed"},
        {"job_id": "job_" + "d" * 26, "name": None, "state": "rejected"},
    ]
    assert completing.offered(JOB, items, "") == [
        ("latest", "the newest job"),
        ("digits", "running"),
    ]
    assert completing.offered(JOB, items, "d") == [("digits", "running")]
    assert completing.offered(JOB, items, "job_a") == [(JOB_ID, "digits, running")]
    assert len(completing.offered(JOB, items, "job_")) == 4
    assert completing.offered(JOB, [], "") == []


def test_a_platform_that_does_not_answer_is_not_waited_for() -> None:
    assert completing._within(0.01, lambda: time.sleep(60) or [("x", "")]) == []
    assert completing._within(60, lambda: [("x", "")]) == [("x", "")]

    def fail() -> Any:
        raise OSError

    assert completing._within(60, fail) == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_are_answered_without_a_platform(shell: str, tmp_path: Any) -> None:
    environment = {
        "DRIVETRAIN_HOME": str(tmp_path),
        "_DRIVETRAIN_COMPLETE": f"complete_{shell}",
        "_TYPER_COMPLETE_ARGS": "drivetrain job show",
        "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        "COMP_WORDS": "drivetrain job show",
        "COMP_CWORD": "2",
    }
    for words, want in (("drivetrain job show", True), ("drivetrain job show d", False)):
        environment |= {"_TYPER_COMPLETE_ARGS": words, "COMP_WORDS": words}
        environment["COMP_CWORD"] = str(len(words.split()) - 1)
        ran = subprocess.run(
            [sys.executable, "-m", "drivetrain.cli"],
            check=False,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert (("show" in ran.stdout), ran.stderr) == (want, ""), (words, ran.stdout)


def test_ids_are_cut_to_fit_a_terminal_and_complete_in_a_pipe(
    cli: RunCli, platform: FakePlatform, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform.on("GET", "/v1/jobs", {"jobs": [make_job("running", 10)], "next": None})
    monkeypatch.setenv("COLUMNS", "80")
    assert JOB_ID in cli("job", "list").out
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    monkeypatch.setenv("COLUMNS", "60")
    shown = cli("job", "list").out
    assert JOB_ID not in shown
    assert JOB_ID[:12] in shown
