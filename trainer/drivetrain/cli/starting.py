"""`drivetrain init`: a commented job.yaml for the directory, from what its files say."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from drivetrain.cli import looking
from drivetrain.cli.command_line import DEFAULT_FILE
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.output import write_line, write_note

MAX_SOURCE_BYTES = 1024 * 1024
MAX_SOURCES = 200
GUIDE = "docs/guides/job-yaml.md"
_REQUIREMENTS = ("requirements.txt", "environment.yml", "environment.yaml", "pyproject.toml")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9 ._-]+")


def init(
    script: Annotated[
        str | None,
        typer.Argument(metavar="SCRIPT", help="The program to run; found if left out."),
    ] = None,
) -> None:
    """Write a commented job.yaml for this directory.

    Nothing is run or sent: the sources are read for the script, its steps and its metrics.
    """
    directory = Path.cwd()
    target = directory / DEFAULT_FILE
    scripts = _scripts(directory, script)
    text = job_text(directory.name, scripts)
    try:
        with target.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        fix = f"edit it, or remove it first: drivetrain job submit {DEFAULT_FILE}"
        raise InvalidInput(f"{DEFAULT_FILE} exists already", fix=fix) from None
    except OSError as error:
        raise InvalidInput(f"cannot write {target}: {error.strerror}") from error
    write_line(f"wrote {DEFAULT_FILE}")
    for note in _notes(directory, scripts):
        write_note(note)
    write_note(f"next: look at {DEFAULT_FILE}, then: drivetrain job submit --wait")


def job_text(directory: str, scripts: list[looking.Script]) -> str:
    """The file, for the first of these scripts."""
    script = scripts[0] if scripts else None
    name = _NOT_IN_NAMES.sub("-", directory).strip(" ._-")[:63] or "job"
    parts = [
        f"# A job of Drivetrain. Every field: {GUIDE}",
        f"name: {_scalar(name)}",
        *_command(script),
        "code: .                  # this directory, without what .gitignore leaves out",
        "",
        "resources:",
        "  devices: 1             # ranks; each gets one device",
        "",
    ]
    if script is not None and script.uses_drivetrain:
        parts += _of_drivetrain(script)
    else:
        parts += [
            "# The script does not use drivetrain: it runs as it is. After a failure it finds the",
            "# files that it wrote, and goes on if it reads a checkpoint of its own at the start.",
            "# With four lines it goes on by itself: docs/guides/port-your-script.md",
            "# max_steps: 1000",
            "# checkpoint: {every_minutes: 5}",
        ]
    parts += [
        "",
        "retries:",
        "  limit: 5               # a failed run is started again at most this often",
        "# environment:           # more variables for the program",
        "#   NAME: text",
        "# tags: [first]          # to find it again",
    ]
    return "\n".join(parts) + "\n"


def _command(script: looking.Script | None) -> Iterator[str]:
    if script is None:
        yield "command: python train.py # no Python script was found here: write your own command"
    else:
        program = "bash" if script.name.endswith(".sh") else "python"
        yield f"command: {_scalar(f'{program} {script.name}')}"


def _of_drivetrain(script: looking.Script) -> Iterator[str]:
    if script.max_steps is not None:
        yield f"max_steps: {script.max_steps}"
    else:
        yield "# max_steps: 1000       # optimizer steps; by default what the script says"
    if script.hyperparameters:
        yield "hyperparameters:         # these override the script's own values"
        yield from (f"  {name}: {_scalar(one)}" for name, one in script.hyperparameters.items())
    metric = script.metric
    if metric is not None:
        yield "# which checkpoint is the best:"
        yield f"metric: {{name: {_scalar(metric[0])}, goal: {metric[1]}}}"
    else:
        yield "# metric: {name: validation_loss, goal: minimize}  # which checkpoint is the best"
    yield "checkpoint:"
    if script.says_when_to_save:
        yield "  # every_minutes: 5     # or every_steps: 100; by default what the script says"
    else:
        yield "  every_minutes: 5       # or every_steps: 100"
    yield "  keep_last: 3"
    yield f"  keep_best: {1 if metric else 0}"


def _notes(directory: Path, scripts: list[looking.Script]) -> Iterator[str]:
    if len(scripts) > 1:
        others = ", ".join(one.name for one in scripts[1:4])
        yield f"it runs {scripts[0].name}; other programs here: {others} (drivetrain init SCRIPT)"
    found = next((name for name in _REQUIREMENTS if (directory / name).exists()), None)
    if found:
        yield f"{found} is not installed by the platform: its nodes need those packages"


def _scripts(directory: Path, chosen: str | None) -> list[looking.Script]:
    """The programs of the directory, the most probable first; or the one that was named."""
    if chosen is not None:
        if not (directory / chosen).is_file():
            raise InvalidInput(f"there is no file {chosen!r:.80}", fix="name the script to run")
        return [looking.look(chosen, _source(directory / chosen))]
    paths = sorted(directory.glob("*.py"))[:MAX_SOURCES]
    found = looking.rank([looking.look(path.name, _source(path)) for path in paths])
    shells = sorted(directory.glob("*.sh"))[:MAX_SOURCES]
    if not found:
        return [looking.Script(path.name) for path in shells[:1]]
    for path in shells:
        if looking.is_usual(path.name) and found[0].name in _source(path):
            return [replace(found[0], name=path.name), *found]  # it drives the script
    return found


def _source(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(MAX_SOURCE_BYTES).decode(errors="replace")
    except OSError as error:
        raise InvalidInput(f"cannot read {path}: {error.strerror}") from error


def _scalar(value: looking.Scalar) -> str:
    """As YAML 1.2: plain where it is a simple word, else as JSON."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9 ._/-]*[A-Za-z0-9]", value):
        is_word = value.lower() not in ("true", "false", "null")
        return value if is_word else json.dumps(value)
    return json.dumps(value)
