"""The command `drivetrain`: its groups of verbs, and every error as a sentence and an exit code.

Exit codes: 0 done; 1 the job (--wait) did not succeed; 2 invalid input; 3 the
platform is unavailable; 4 not found; 5 refused; 130 interrupted.
"""

import signal
import sys
from typing import Annotated

import typer

from drivetrain.cli import (
    alerts,
    budgets,
    checkpoints,
    costs,
    exports,
    files,
    forks,
    job_comparison,
    job_exports,
    jobs,
    nodes,
    pages,
    parked,
    reports,
    reruns,
    session,
    starting,
    studies,
)
from drivetrain.cli.errors import CliError, ExitCode, Interrupted
from drivetrain.cli.output import write_error
from drivetrain.cli.session import example

EPILOG = (
    "Connection: DRIVETRAIN_URL and DRIVETRAIN_TOKEN, else connection.json in DRIVETRAIN_HOME "
    "(default ~/.drivetrain). "
    "Exit codes: 0 done, 1 the job did not succeed (--wait), 2 invalid input, "
    "3 the platform is unavailable, 4 not found, 5 refused."
)

app = session.make_group(
    "Train on Drivetrain: submit jobs and studies, and inspect them.", has_completion=True
)
app.info.epilog = EPILOG
files.register(jobs.app)
forks.register(jobs.app)
reruns.register(jobs.app)
job_comparison.register(jobs.app)
job_exports.register(jobs.app)
exports.register(checkpoints.app)
app.add_typer(jobs.app, name="job")
app.add_typer(studies.app, name="study")
app.add_typer(checkpoints.app, name="checkpoint")
app.add_typer(costs.app, name="cost")
app.add_typer(budgets.app, name="budget")
app.add_typer(alerts.app, name="alert")
app.add_typer(nodes.app, name="node")
app.add_typer(parked.app, name="parked")
app.command(name="init", epilog=example("drivetrain init train.py"))(starting.init)
app.command(name="open", epilog=example("drivetrain open digits"))(pages.open_page)
app.command(name="report", epilog=example("drivetrain report loss=0.3 --step 100"))(reports.report)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version

        print(f"drivetrain {version('drivetrain')}")
        raise typer.Exit


@app.callback()
def drivetrain(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version."),
    ] = False,
) -> None:
    """Train on Drivetrain: submit jobs and studies, and inspect them."""


def main() -> None:
    """The entry point."""
    before = signal.signal(signal.SIGINT, _interrupt)
    try:
        app(prog_name="drivetrain")
    except CliError as error:
        write_error(error)
        sys.exit(error.exit_code)
    except Interrupted:
        sys.exit(ExitCode.INTERRUPTED)
    finally:
        signal.signal(signal.SIGINT, before)


def _interrupt(*_: object) -> None:
    raise Interrupted
