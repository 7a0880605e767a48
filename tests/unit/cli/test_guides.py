"""The guides say what is so: their job files are jobs, and their commands are understood."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from drivetrain.cli.documents import read_document
from drivetrain.cli.main import app
from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.studies import StudySpec

ROOT = Path(__file__).parents[3]
# What a part of a study in a guide leaves out.
STUDY: dict[str, Any] = {
    "name": "search",
    "job": {
        "name": "j",
        "command": "true",
        "max_steps": 2700,
        "metric": {"name": "loss", "goal": "minimize"},
    },
    "max_trials": 60,
}
SPACE = {name: {"type": "integer", "low": 1, "high": 64} for name in ("width", "depth")}
CODE = {"uri": "file:///x", "sha256": "0" * 64}
GUIDES = sorted((ROOT / "docs" / "guides").glob("*.md"))


def blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("path", GUIDES, ids=lambda path: path.name)
def test_the_job_files_of_a_guide_are_jobs(path: Path) -> None:
    for text in blocks(path, "yaml"):
        job = read_document(text, path.name).value
        if "space" in job or job.keys() <= StudySpec.model_fields.keys() - {"name"}:
            study = {"space": SPACE, **STUDY, **job}
            StudySpec.model_validate({**study, "job": {**study["job"], "code": CODE}})
            continue
        JobSpec.model_validate({**job, "code": CODE})


@pytest.mark.parametrize("path", [*GUIDES, ROOT / "README.md"], ids=lambda path: path.name)
def test_the_commands_of_a_guide_are_understood(path: Path) -> None:
    lines = [line for text in blocks(path, "") for line in text.splitlines()]
    commands = [line.partition(" #")[0] for line in lines]
    for command in commands:
        if re.match(r"(\$ )?(\S*/)?drivetrain ", command):
            understand(shlex.split(command.removeprefix("$ "))[1:])


def understand(words: list[str]) -> None:
    """Raises for a verb or an option that does not exist."""
    command: Any = get_command(app)
    while hasattr(command, "commands"):
        assert words, "a group of verbs without a verb"
        command = command.commands[words[0]]
        words = words[1:]
    command.make_context("drivetrain", words)


@pytest.mark.parametrize("path", [*GUIDES, ROOT / "README.md"], ids=lambda path: path.name)
def test_the_links_of_a_guide_lead_to_files(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
        if not target.startswith("http"):
            assert (path.parent / target).exists(), target
