"""Errors of the command line, each kind with its exit code.

CliError
├── InvalidInput   2  a file, an option or a value is wrong; nothing was sent
├── Unreachable    3  no platform is known, it does not answer, or it is unavailable
│   └── NoAnswer   3  the request may have been received
├── NotFound       4  not found
└── Refused        5  the platform refused the request
JobFailed          1  the job or study did not succeed

Interrupted is not a CliError: Ctrl-C ends a command with 130, whatever handles errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any


class ExitCode(IntEnum):
    OK = 0
    JOB_FAILED = 1
    INVALID_INPUT = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    REFUSED = 5
    INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """What is wrong with one field; `place` is a file and line where one is known."""

    field: str
    message: str
    fix: str = ""
    place: str = ""

    def __str__(self) -> str:
        place = f"{self.place}: " if self.place else ""
        fix = f" ({self.fix})" if self.fix else ""
        return f"{place}{self.field} {self.message}{fix}"


class CliError(Exception):
    """The base: a sentence, the fix, and the problems of single fields."""

    exit_code = ExitCode.INVALID_INPUT

    def __init__(
        self, message: str, *, fix: str = "", problems: Sequence[FieldProblem] = ()
    ) -> None:
        super().__init__(message)
        self.message = message
        self.fix = fix
        self.problems = tuple(problems)


class InvalidInput(CliError):
    """A file, an option or a value is wrong; nothing was sent."""


class Unreachable(CliError):
    """No platform is known, it does not answer, or it is unavailable."""

    exit_code = ExitCode.UNREACHABLE


class NoAnswer(Unreachable):
    """No reply came, but the request may have been received."""


class NotFound(CliError):
    """The platform does not know this id."""

    exit_code = ExitCode.NOT_FOUND


class Refused(CliError):
    """The platform refused the request."""

    exit_code = ExitCode.REFUSED


class JobFailed(CliError):
    """The job or study did not succeed."""

    exit_code = ExitCode.JOB_FAILED


class Interrupted(BaseException):
    """Ctrl-C. Not KeyboardInterrupt, which typer would turn into the exit code of a failed job."""


def field_problems(errors: Any) -> list[FieldProblem]:
    """The `errors` of a problem document or of a refusal."""
    return [
        FieldProblem(str(item.get("field")), str(item.get("message")), str(item.get("fix") or ""))
        for item in errors or ()
        if isinstance(item, dict)
    ]
