"""`drivetrain open`: a page in the browser, signed in.

A sign-in link works once, within ten minutes. It is written to a terminal only: what ends in a file
or a log gets the plain address of the page.
"""

import os
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from drivetrain.cli import completing, session
from drivetrain.cli.errors import CliError, NotFound
from drivetrain.cli.names import find_job, find_study
from drivetrain.cli.output import write_line, write_note

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway

HOME_PAGE = "/"


def open_page(
    what: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB",
            help="A job or a study; without it, the list of jobs.",
            autocompletion=completing.jobs,
        ),
    ] = None,
) -> None:
    """Open a page in the browser, signed in; prints the link."""
    with session.connect() as gateway:
        path = HOME_PAGE if what is None else _path(gateway, what)
        url = sign_in_link(gateway, path)
    write_line(url)
    if sys.stdout.isatty() and _has_browser(os.environ):
        import webbrowser

        if not webbrowser.open(url):
            write_note("no browser could be started: open the link yourself")


def page_link(gateway: "Gateway", url: str) -> str:
    """The address of a page; on a terminal one that also signs in."""
    path = urlsplit(url).path
    if sys.stdout.isatty():
        try:
            return sign_in_link(gateway, path)
        except CliError:
            pass  # the job was submitted: its plain address is better than an error
    return session.address(gateway, url)


def sign_in_link(gateway: "Gateway", path: str) -> str:
    """A link to the page that signs one browser in, once."""
    answer = gateway.post("/v1/login-links", {"path": path})
    return session.address(gateway, str(answer["url"]))


def _path(gateway: "Gateway", what: str) -> str:
    if not what.startswith("study_"):
        try:
            return f"/jobs/{find_job(gateway, what)}"
        except NotFound:
            if what.startswith("job_"):
                raise
    try:
        return f"/studies/{find_study(gateway, what)}"
    except NotFound:
        raise NotFound(f"there is no job or study {what!r:.80}") from None


def _has_browser(environment: Mapping[str, str]) -> bool:
    """Whether a browser with a window can be expected, and not one inside this terminal."""
    names = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER", "WSL_DISTRO_NAME")
    return sys.platform == "darwin" or any(environment.get(name) for name in names)
