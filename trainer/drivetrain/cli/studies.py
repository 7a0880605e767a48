"""`drivetrain study`: submit, list, show, cancel; its other verbs are in the files it names."""

import sys
import time
import uuid
from itertools import islice
from typing import Annotated

import typer

from drivetrain.cli import (
    amounts,
    completing,
    session,
    study_commands,
    study_comparison,
    study_files,
    waiting,
)
from drivetrain.cli.errors import InvalidInput, JobFailed, Refused, field_problems
from drivetrain.cli.names import find_study
from drivetrain.cli.output import (
    Column,
    Format,
    Item,
    field_column,
    text_of,
    write_line,
    write_list,
    write_note,
    write_record,
    write_value,
)
from drivetrain.cli.pages import page_link
from drivetrain.cli.session import (
    FileArgument,
    LimitOption,
    OutputOption,
    RequestIdOption,
    SetOption,
    StudyArgument,
    example,
    segment,
)

app = session.make_group("Search hyperparameters.")


# Trials that `show` prints, and how often a watched study is read again.
SHOWN_TRIALS = 100
WATCH_SECONDS = 2.0
_CLEAR = "\x1b[H\x1b[2J"


def _trials(study: Item) -> str:
    return f"{waiting.num_ended(study)}/{text_of(study.get('num_trials'))}"


def _value(trial: Item) -> str:
    """The values of all objectives; of a trial without one what was measured at its last rung."""
    if trial["value"] is not None or trial.get("measured") is None:
        return ", ".join(map(text_of, trial.get("values") or [trial["value"]]))
    return f"({text_of(trial['measured'])} at {trial['rung']})"


def _state(trial: Item) -> str:
    """While a trial is to run, its job's; an unsafe trial has a value and no rank."""
    state: str = trial["state"]
    if state == "proposed":
        state = trial.get("job_state") or state
    return state if trial.get("is_safe", True) else f"{state}, unsafe"


STUDY_COLUMNS = (
    field_column("STUDY", "study_id"),
    field_column("NAME", "name"),
    field_column("STATE", "state"),
    Column("TRIALS", _trials, is_number=True),
    field_column("METRIC", "metric"),
    field_column("BEST", "best_value", is_number=True),
    Column("STARTED", lambda study: amounts.moment(study.get("started_at"))),
)
TRIAL_COLUMNS = (
    field_column("RANK", "rank", is_number=True),
    field_column("TRIAL", "number", is_number=True),
    Column("STATE", _state),
    Column("VALUE", _value, is_number=True),
    Column("STEP", lambda one: amounts.steps(one.get("step"), one.get("max_steps")), True),
    Column("HYPERPARAMETERS", lambda trial: as_text(trial["hyperparameters"])),
    field_column("JOB", "job_id"),
)


@app.command(epilog=example("drivetrain study submit study.yaml --wait"))
def submit(
    file: FileArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until the study has ended.")] = False,
    settings: SetOption = None,
    request_id: RequestIdOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Submit a study. With --wait, the exit code is 1 if no trial has a value."""
    from drivetrain.cli.specs import load_study

    with session.connect() as gateway:
        spec = load_study(file, settings or [], gateway)
        study = gateway.submit("/v1/studies", request_id or uuid.uuid4().hex, spec)
        if output is Format.TABLE:
            write_line(study["study_id"])
            write_line(page_link(gateway, study["study_url"]))
        if wait:
            path = f"/v1/studies/{segment(study['study_id'])}"
            study = waiting.wait(
                lambda: gateway.get(path, tries=1),
                waiting.status_of_study,
                waiting.FINAL_STUDY_STATES,
                hint=f"the study continues; see: drivetrain study show {study['study_id']}",
            )
        if output is not Format.TABLE:
            write_value(study, output)
        if wait:
            _finish(study)


@app.command(name="list", epilog=example("drivetrain study list --state running"))
def list_studies(
    state: Annotated[
        str | None,
        typer.Option(
            "--state", help="Only studies in this state.", autocompletion=completing.study_states
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="Only studies of this name.")] = None,
    limit: LimitOption = 20,
    output: OutputOption = Format.TABLE,
) -> None:
    """List studies, newest first."""
    filters = {"state": state, "name": name}
    with session.connect() as gateway:
        studies = list(islice(gateway.pages("/v1/studies", "studies", filters), limit))
    write_list(studies, STUDY_COLUMNS, output, "no studies")


@app.command(epilog=example("drivetrain study show latest --watch"))
def show(
    study: StudyArgument,
    watch: Annotated[
        bool, typer.Option("--watch", help="Keep showing the ranking until the study has ended.")
    ] = False,
    trials: Annotated[
        int, typer.Option("--trials", min=1, max=10_000, help="The best so many trials.")
    ] = SHOWN_TRIALS,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show one study and its trials, the best first."""
    if watch and (output is not Format.TABLE or not sys.stdout.isatty()):
        raise InvalidInput(
            "--watch needs a terminal", fix="wait with: drivetrain study submit --wait"
        )
    with session.connect() as gateway:
        path = f"/v1/studies/{segment(find_study(gateway, study))}"
        while True:
            found = gateway.get(path, {"max_trials": trials})
            if watch:
                print(_CLEAR, end="")
            write_record(found, output, _rows(found))
            if output is Format.TABLE:
                write_line("")
                write_list(found["trials"], TRIAL_COLUMNS, output, "no trials yet")
            if not watch or found["state"] in waiting.FINAL_STUDY_STATES:
                return
            time.sleep(WATCH_SECONDS)


@app.command(epilog=example("drivetrain study cancel latest --reason enough"))
def cancel(
    study: StudyArgument,
    reason: study_commands.ReasonOption = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Cancel a study and the jobs of its running trials. Results are kept."""
    study_commands.change(study, "cancel", {"reason": reason}, "is being cancelled", output)


def as_text(hyperparameters: Item) -> str:
    """'learning_rate=0.1 width=8'."""
    return " ".join(f"{name}={text_of(value)}" for name, value in sorted(hyperparameters.items()))


def _finish(study: Item) -> None:
    if study["state"] == "rejected":
        refusal = study["refusal"]
        problems = field_problems(refusal["errors"])
        raise Refused(f"{refusal['reason']}: {refusal['detail']}", problems=problems)
    if study["state"] == "cancelled":
        fix = f"see: drivetrain study show {study['study_id']}"
        raise JobFailed("the study was cancelled", fix=fix)
    if study["state"] == "failed":
        fix = f"see: drivetrain study show {study['study_id']}"
        raise JobFailed(f"the study failed: {study['failure']}", fix=fix)
    if study.get("best_number") is None:
        fix = f"see: drivetrain study show {study['study_id']}"
        raise JobFailed("no trial of the study has a value and is safe", fix=fix)
    number, value = study["best_number"], study["best_value"]
    best = next((trial for trial in study["trials"] if trial["number"] == number), None)
    point = f" with {as_text(best['hyperparameters'])}" if best else ""
    best = f"{study['metric']} {amounts.number(value)}"
    write_note(f"completed: best is trial {number}, {best}{point}")


def _kinds(study: Item) -> str:
    """'3 stopped early, 1 without a value, 2 paused'."""
    names = (("num_stopped", "stopped early"), ("num_failed", "without a value"))
    counts = [(study.get(field, 0), name) for field, name in (*names, ("num_paused", "paused"))]
    return ", ".join(f"{num} {name}" for num, name in counts if num or name == "without a value")


def _rows(study: Item) -> list[tuple[str, str]]:
    rows = [
        ("study", study["study_id"]),
        ("name", text_of(study.get("name"))),
        ("state", study["state"]),
        ("trials", f"{_trials(study)} ended, {_kinds(study)}"),
        ("sampler", text_of(study.get("sampler"))),
        ("metric", f"{text_of(study.get('goal'))} {text_of(study.get('metric'))}"),
    ]
    if study.get("best_number") is not None:
        best = amounts.number(study["best_value"])
        rows.append(("best", f"{best} by trial {study['best_number']}"))
    if study.get("pareto"):
        rows.append(("pareto", f"trials {', '.join(map(str, study['pareto']))}"))
    if study.get("ended_by") not in (None, "max_trials"):
        rows.append(("ended by", study["ended_by"].replace("_", " ")))
    if study.get("failure"):
        rows.append(("failed", study["failure"]))
    if study.get("refusal"):
        rows.append(("refused", f"{study['refusal']['reason']}: {study['refusal']['detail']}"))
    return rows


study_commands.register(app)
study_files.register(app)
study_comparison.register(app)
