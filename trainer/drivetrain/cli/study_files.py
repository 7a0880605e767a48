"""`drivetrain study export`, `import` and `preview`: files of another tool, and of a study."""

import secrets
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from drivetrain.cli import amounts, downloads, session
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.files import OverwriteOption
from drivetrain.cli.names import find_study
from drivetrain.cli.output import (
    Column,
    Format,
    Item,
    write_line,
    write_list,
    write_note,
    write_record,
    write_value,
)
from drivetrain.cli.pages import page_link
from drivetrain.cli.session import (
    FileArgument,
    OutputOption,
    RequestIdOption,
    SetOption,
    StudyArgument,
    example,
    segment,
)

# The rungs of a preview, as text.
RUNG_COLUMNS = (
    Column("STEP", lambda rung: f"{rung['step']:,}", is_number=True),
    Column("TRIALS", lambda rung: _span(rung["num_trials"]), is_number=True),
)


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


def import_study(
    storage: Annotated[
        Path, typer.Argument(metavar="STORAGE", help="An Optuna storage: a SQLite file.")
    ],
    file: FileArgument,
    study_name: Annotated[
        str | None, typer.Option("--study-name", help="Which study, if the file has several.")
    ] = None,
    settings: SetOption = None,
    request_id: RequestIdOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Start a study (FILE) that begins with the finished trials of an Optuna storage."""
    from drivetrain.cli import optuna_storage
    from drivetrain.cli.specs import load_study

    optuna_storage.need_optuna()
    finished = optuna_storage.read_finished(storage, study_name)
    if finished.num_left_out:
        num = finished.num_left_out
        write_note(f"not imported: {num} trials that did not end with or without a value")
    with session.connect() as gateway:
        spec = load_study(file, settings or [], gateway)
        trials = optuna_storage.first_trials(finished, spec)
        chosen = request_id or uuid.uuid4().hex
        study = gateway.submit("/v1/studies/import", chosen, spec, trials=trials)
        if output is Format.TABLE:
            write_line(study["study_id"])
            write_line(page_link(gateway, study["study_url"]))
        else:
            write_value(study, output)


def preview(
    file: FileArgument, settings: SetOption = None, output: OutputOption = Format.TABLE
) -> None:
    """Say what a study would use: trials per rung, steps, device-hours, money. Nothing starts."""
    from drivetrain.cli.specs import load_study

    with session.connect() as gateway:
        spec = load_study(file, settings or [], gateway)
        found = gateway.post("/v1/studies/preview", {"spec": spec})
    write_record(found, output, _preview_rows(found))
    if output is Format.TABLE and found["rungs"]:
        write_line("")
        write_list(found["rungs"], RUNG_COLUMNS, output, "")


def _dollars(amount: float) -> str:
    return amounts.money(round(amount * 1_000_000))


def _hours(hours: float) -> str:
    return amounts.duration(hours * 3600)


# What a preview may know, as it is named and written.
UNITS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("device_hours", "device-hours", "{:,.3g}".format),
    ("cost_usd", "cost", _dollars),
    ("hours", "time", _hours),
)


def _preview_rows(found: Item) -> list[tuple[str, str]]:
    rows = [("trials", f"{found['num_trials']:,}")]
    whole = found["steps_without_pruner"]
    if found["steps"] is not None:
        rows.append(("steps", f"{_span(found['steps'])}; {whole:,} without a pruner"))
    rows += [
        (text, _span(found[name], shown)) for name, text, shown in UNITS if found[name] is not None
    ]
    if found["reached_limits"]:
        rows.append(("ended by", ", ".join(found["reached_limits"])))
    if found["unknown"]:
        rows.append(("not known", "; ".join(found["unknown"])))
    return rows


def _span(span: Item, shown: Callable[[float], str] = "{:,.6g}".format) -> str:
    """'12 to 40, likely 25'."""
    low, likely, high = (shown(span[name]) for name in ("low", "likely", "high"))
    return likely if low == high else f"{low} to {high}, likely {likely}"


def register(app: typer.Typer) -> None:
    """Add these verbs to `drivetrain study`."""
    app.command(epilog=example("drivetrain study export latest --optuna search.db"))(export)
    app.command(name="import", epilog=example("drivetrain study import search.db study.yaml"))(
        import_study
    )
    app.command(epilog=example("drivetrain study preview study.yaml"))(preview)
