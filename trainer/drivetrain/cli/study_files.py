"""`drivetrain study export`: a study as a file of another tool."""

import secrets
from pathlib import Path
from typing import Annotated

import typer

from drivetrain.cli import downloads, session
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.files import OverwriteOption
from drivetrain.cli.names import find_study
from drivetrain.cli.output import write_line
from drivetrain.cli.session import StudyArgument, example, segment


def export(
    study: StudyArgument,
    optuna: Annotated[
        Path,
        typer.Option("--optuna", metavar="FILE", help="Write an Optuna storage (SQLite)."),
    ],
    overwrite: OverwriteOption = False,
) -> None:
    """Write a study and its trials as a file that Optuna's own tools open."""
    from drivetrain.cli import optuna_storage

    optuna_storage.need_optuna()
    downloads.check_targets(optuna.parent, [optuna.name], overwrite)
    with session.connect() as gateway:
        path = f"/v1/studies/{segment(find_study(gateway, study))}"
        found = gateway.get(path, {"max_trials": 1})
        if found["spec"] is None:
            raise InvalidInput("the study has no spec: its request could not be read")
        # The file appears whole or not at all.
        partial = optuna.with_name(f".{optuna.name}.{secrets.token_hex(4)}")
        try:
            trials = gateway.pages(f"{path}/trials", "trials")
            num_trials = optuna_storage.write_storage(partial, found, trials)
            partial.replace(optuna)
        finally:
            partial.unlink(missing_ok=True)
    write_line(f"{num_trials} trials in {optuna_storage.address(optuna)}")


def register(app: typer.Typer) -> None:
    """Add these verbs to `drivetrain study`."""
    app.command(epilog=example("drivetrain study export latest --optuna search.db"))(export)
