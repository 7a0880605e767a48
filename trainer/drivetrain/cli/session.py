"""Opening the platform, and the options that many verbs share."""

import os
from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from drivetrain.cli import completing
from drivetrain.cli.connection import find_connection
from drivetrain.cli.output import Format

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway

JOB_HELP = "A job: its id, the beginning of it, its name, or latest."
STUDY_HELP = "A study: its id, the beginning of it, its name, or latest."
JobArgument = Annotated[
    str,
    typer.Argument(
        metavar="JOB",
        help=JOB_HELP,
        autocompletion=completing.jobs,
    ),
]
StudyArgument = Annotated[
    str,
    typer.Argument(
        metavar="STUDY",
        help=STUDY_HELP,
        autocompletion=completing.studies,
    ),
]
FileArgument = Annotated[
    str, typer.Argument(metavar="FILE", help="A YAML file, or - for standard input.")
]
OutputOption = Annotated[
    Format, typer.Option("--output", "-o", help="Output format.", show_default=True)
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="PATH=VALUE", help="Set a field: --set max_steps=10"),
]
RequestIdOption = Annotated[
    str | None,
    typer.Option(
        "--request-id",
        metavar="ID",
        help="Your own id for this request: a repeated id is the same job or study.",
    ),
]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most this many.")]

# For a command that was sent but not confirmed by the service yet.
UNCONFIRMED = "requested, not confirmed yet"


def connect() -> "Gateway":
    """The platform that the environment names. Use it as a context manager."""
    from drivetrain.cli.gateway import Gateway

    return Gateway(find_connection(os.environ))


def segment(name: str) -> str:
    """An id as one segment of a path, with any characters."""
    return quote(name, safe="")


def address(gateway: "Gateway", url: str) -> str:
    """A page's address that can be clicked."""
    return gateway.url + url if url.startswith("/") else url


def example(command: str) -> str:
    """The end of a verb's help."""
    return f"Example: {command}"


def make_group(help_text: str, *, has_completion: bool = False) -> typer.Typer:
    """A group of verbs. Plain help: rich's panels would cost a tenth of a second each time."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        rich_markup_mode=None,
        add_completion=has_completion,
    )
