"""A job from a command line instead of a file: `drivetrain job submit -- python train.py`.

Everything after `--` is the job's command, with its own options. The current directory is sent as
its code if the command names a file or a module in it.
"""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

from drivetrain.cli.errors import InvalidInput

DEFAULT_FILE = "job.yaml"

_META = "drivetrain.command"
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9 ._-]+")
_PROGRAMS = re.compile(r"(?:.*/)?(?:python|bash|sh|torchrun|accelerate)[0-9.]*")
MAX_NAME = 63


class CommandAfterDashes(TyperCommand):
    """Takes what follows the first `--` as the job's command.

    `ctx` is Any because typer has no public name for the class that its commands get.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        before, after = args, []
        if "--" in args:
            at = args.index("--")
            before, after = args[:at], args[at + 1 :]
            if not after:
                raise typer.BadParameter("write the command after --", ctx)
        ctx.meta[_META] = tuple(after)
        return super().parse_args(ctx, before)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [*super().collect_usage_pieces(ctx), "[-- COMMAND...]"]


def given_command(context: typer.Context) -> tuple[str, ...]:
    """What was written after `--`; empty if nothing was."""
    command: tuple[str, ...] = context.meta.get(_META, ())
    return command


def as_spec(command: Sequence[str], directory: Path) -> dict[str, Any]:
    """The job of this command, run from `directory`. Raises InvalidInput."""
    if (script := _script_of(command)) and not (directory / script).is_file():
        fix = "write its path as seen from here, or submit from its directory"
        raise InvalidInput(f"{script} is not a file in {directory}", fix=fix)
    spec: dict[str, Any] = {"name": _name_of(command), "command": list(command)}
    if any(_is_of(directory, word) for word in _words(command)):
        spec["code"] = "."
    return spec


def _words(command: Sequence[str]) -> Iterator[str]:
    """Each word, and the words inside one: `bash -c "python train.py"`."""
    for word in command:
        yield word
        try:
            yield from shlex.split(word)
        except ValueError:
            yield from word.split()


def _script_of(command: Sequence[str]) -> str:
    """The script that an interpreter is to run, if it is not an absolute path."""
    if not _PROGRAMS.fullmatch(command[0]):
        return ""
    word = next((word for word in command[1:] if not word.startswith("-")), "")
    is_script = word.endswith((".py", ".sh")) and not any(mark.isspace() for mark in word)
    return word if is_script and not word.startswith(("/", "~")) else ""


def _is_of(directory: Path, word: str) -> bool:
    """Whether the word is a file of the directory, or one of its modules (`python -m train`)."""
    if not word or word.startswith(("-", "/", "~")):
        return False
    if (directory / word).is_file():
        return True
    as_module = directory / word.replace(".", "/")
    return as_module.with_suffix(".py").is_file() or (as_module / "__main__.py").is_file()


def _name_of(command: Sequence[str]) -> str:
    """`train` of `python train.py --lr 0.1`; else the program."""
    words = [word for word in command if not word.startswith("-")]
    script = next((word for word in words if word.endswith((".py", ".sh"))), None)
    other = next((word for word in words if not _PROGRAMS.fullmatch(word)), None)
    chosen = Path(script or other or command[0])
    name = chosen.stem if script else chosen.name
    return _NOT_IN_NAMES.sub("-", name).lstrip(" ._-")[:MAX_NAME].rstrip() or "job"
