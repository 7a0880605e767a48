"""`drivetrain job`: submit, list, show, logs, metrics, explain, cancel, estimate, and more."""

import json
import uuid
from datetime import datetime
from itertools import islice
from typing import Annotated

import typer

from drivetrain.cli import amounts, completing, job_commands, moments, session
from drivetrain.cli.command_line import CommandAfterDashes, given_command
from drivetrain.cli.job_view import JOB_COLUMNS, METRIC_COLUMNS, SYSTEM_COLUMNS, WORD, rows_of
from drivetrain.cli.logs import LogLevel, Wanted, follow_logs, show_logs
from drivetrain.cli.made import WaitOption, announce, conclude
from drivetrain.cli.names import find_job, find_study
from drivetrain.cli.output import (
    Format,
    Item,
    write_line,
    write_list,
    write_note,
    write_record,
    write_value,
)
from drivetrain.cli.session import (
    STUDY_HELP,
    FileArgument,
    JobArgument,
    LimitOption,
    OutputOption,
    RequestIdOption,
    SetOption,
    address,
    example,
    segment,
)

app = session.make_group("Submit jobs and look at them.")


@app.command(
    cls=CommandAfterDashes,
    epilog=example("drivetrain job submit --wait -- python train.py --lr 0.1"),
)
def submit(
    context: typer.Context,
    file: Annotated[
        str | None,
        typer.Argument(metavar="FILE", help="A YAML file, or - for standard input: job.yaml."),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", help="The job's name.")] = None,
    devices: Annotated[
        int | None, typer.Option("--devices", min=1, help="The number of ranks, a device each.")
    ] = None,
    project: Annotated[
        str | None, typer.Option("--project", help="The project that it is part of.")
    ] = None,
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="Add this tag; may be repeated.")
    ] = None,
    wait: WaitOption = False,
    settings: SetOption = None,
    request_id: RequestIdOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Submit a job. With --wait, the exit code is 1 if it does not succeed.

    Without a file, the job is the command after --, which runs in a copy of this directory.
    """
    from drivetrain.cli.specs import load_job

    options = [f"name={json.dumps(name)}"] if name is not None else []
    options += [f"project={json.dumps(project)}"] if project is not None else []
    options += [f"resources.devices={devices}"] if devices is not None else []
    with session.connect() as gateway:
        spec = load_job(
            file, [*options, *(settings or ())], gateway, given_command(context), tags or ()
        )
        job = gateway.submit("/v1/jobs", request_id or uuid.uuid4().hex, spec)
        announce(gateway, job, output)
        conclude(gateway, job, output, wait=wait)


@app.command(name="list", epilog=example("drivetrain job list --state running"))
def list_jobs(
    state: Annotated[
        str | None,
        typer.Option(
            "--state", help="Only jobs in this state.", autocompletion=completing.job_states
        ),
    ] = None,
    search: Annotated[
        str | None, typer.Option("--search", help="A part of the name, or how an id begins.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only jobs with this tag.")] = None,
    project: Annotated[
        str | None, typer.Option("--project", help="Only jobs of this project.")
    ] = None,
    study: Annotated[
        str | None,
        typer.Option(
            "--study",
            metavar="STUDY",
            help=f"Only trials of this study. {STUDY_HELP}",
            autocompletion=completing.studies,
        ),
    ] = None,
    limit: LimitOption = 20,
    output: OutputOption = Format.TABLE,
) -> None:
    """List jobs, newest first."""
    with session.connect() as gateway:
        filters = {"state": state, "search": search, "tag": tag, "project": project}
        if study is not None:
            filters["study_id"] = find_study(gateway, study)
        jobs = list(islice(gateway.pages("/v1/jobs", "jobs", filters), limit + 1))
    write_list(jobs[:limit], JOB_COLUMNS, output, "no jobs")
    if len(jobs) > limit:
        write_note("there are more: write a higher --limit")


@app.command(epilog=example("drivetrain job show latest"))
def show(job: JobArgument, output: OutputOption = Format.TABLE) -> None:
    """Show one job: its state, its runs, its result."""
    with session.connect() as gateway:
        found = gateway.get(f"/v1/jobs/{segment(find_job(gateway, job))}")
        write_record(found, output, rows_of(found, address(gateway, found["job_url"])))


@app.command(epilog=example("drivetrain job logs digits --level error --search memory --follow"))
def logs(
    job: JobArgument,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Continue until the job ends.")
    ] = False,
    rank: Annotated[int | None, typer.Option("--rank", min=0, help="Only this rank.")] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Only this attempt.")
    ] = None,
    search: Annotated[
        str, typer.Option("--search", help="Only lines with this text, in any case.")
    ] = "",
    level: Annotated[
        LogLevel | None, typer.Option("--level", help="Only lines of this level or a higher one.")
    ] = None,
    since: Annotated[
        datetime | None,
        typer.Option(
            "--since",
            parser=moments.moment,
            metavar=moments.METAVAR,
            help="Only what arrived then or later: 10m, 2h, 7d (ago), or 2026-11-22T10:00.",
        ),
    ] = None,
    until: Annotated[
        datetime | None,
        typer.Option(
            "--until",
            parser=moments.moment,
            metavar=moments.METAVAR,
            help="Only what arrived earlier than then.",
        ),
    ] = None,
    tail: Annotated[
        int, typer.Option("--tail", min=1, max=5000, help="Start with this many of the last lines.")
    ] = 1000,
) -> None:
    """Print the output of the job's ranks, or search in it."""
    wanted = Wanted(rank, attempt, level, search, since, until)
    with session.connect() as gateway:
        job_id = find_job(gateway, job)
        if follow:
            follow_logs(gateway, job_id, wanted, tail)
        else:
            show_logs(gateway, job_id, wanted, tail)


@app.command(epilog=example("drivetrain job metrics latest --name loss --output json"))
def metrics(
    job: JobArgument,
    names: Annotated[
        list[str] | None, typer.Option("--name", "-n", help="Only this metric; may be repeated.")
    ] = None,
    attempt: Annotated[
        int | None, typer.Option("--attempt", min=1, help="Only of this attempt.")
    ] = None,
    from_step: Annotated[int | None, typer.Option("--from-step", min=0)] = None,
    to_step: Annotated[int | None, typer.Option("--to-step", min=0)] = None,
    max_points: Annotated[int | None, typer.Option("--max-points", min=16, max=20_000)] = None,
    rank: Annotated[int | None, typer.Option("--rank", min=0, help="Of this rank, not 0.")] = None,
    system: Annotated[
        bool,
        typer.Option("--system", help="What the rank's pod used: CPU, memory, disk, devices."),
    ] = False,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what the job logged. With --output json or yaml, all points."""
    query = {
        "system": True if system else None,
        "rank": rank,
        "name": names or None,
        "attempt": attempt,
        "from_step": from_step,
        "to_step": to_step,
        "max_points": max_points,
    }
    with session.connect() as gateway:
        path = f"/v1/jobs/{segment(find_job(gateway, job))}/metrics"
        samples = gateway.get(path, query)
    if output is not Format.TABLE:
        write_value(samples, output)
        return
    items = [{"name": name, **series} for name, series in sorted(samples["series"].items())]
    columns = SYSTEM_COLUMNS if system else METRIC_COLUMNS
    write_list(items, columns, output, "no metrics yet")
    if left_out := samples.get("num_series_left_out"):
        write_note(f"{left_out} more series are not shown: select with --name")


@app.command(epilog=example("drivetrain job explain latest"))
def explain(job: JobArgument, output: OutputOption = Format.TABLE) -> None:
    """Explain the job's state: why it waits, or why it failed."""
    with session.connect() as gateway:
        explanation = gateway.get(f"/v1/jobs/{segment(find_job(gateway, job))}/explain")
    if output is not Format.TABLE:
        write_value(explanation, output)
        return
    write_line(explanation["text"])
    for holder in (explanation.get("waiting") or {}).get("holders") or ():
        why = f" ({holder['detail']})" if holder.get("detail") else ""
        number = holder["num_slots"]
        write_line(f"  {holder['job_id']} holds {number} slot{'' if number == 1 else 's'}{why}")
    for alert in explanation.get("alerts") or ():
        write_line(f"  alert {alert['alert']}: {alert['detail']}")
    for one in explanation.get("warnings") or ():
        write_line(f"  {WORD.get(one['warning'], 'warning')}: {one['detail']}")


@app.command(epilog=example("drivetrain job cancel digits --reason enough"))
def cancel(
    job: JobArgument,
    reason: job_commands.ReasonOption = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Cancel a job. Its checkpoints are kept."""
    job_commands.change(job, "cancel", {"reason": reason}, "is being cancelled", output)


@app.command(epilog=example("drivetrain job estimate job.yaml"))
def estimate(
    file: FileArgument,
    seconds: Annotated[
        float | None, typer.Option("--seconds", min=1, help="Run time to estimate for, too.")
    ] = None,
    settings: SetOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Estimate the cost of a job from what jobs like it took, without submitting it."""
    from drivetrain.cli.specs import load_job

    with session.connect() as gateway:
        spec = load_job(file, settings or [], None)
        answer = gateway.post("/v1/estimates", {"spec": spec, "seconds": seconds})
    price = amounts.money(answer["price_micro_usd_per_slot_hour"])
    rows = [("price", f"{price} per slot and hour ({answer['price_id']})")]
    if seconds is not None:
        cost = amounts.money(answer["estimated_micro_usd"])
        rows.insert(0, ("estimate", f"{cost} for {amounts.duration(seconds)}"))
    if history := answer.get("history"):
        rows.insert(0, ("from history", _from_history(history)))
    write_record(answer, output, rows)


def _from_history(history: Item) -> str:
    if not history["num_jobs"]:
        return "none: no job of this name, command or project has succeeded yet"
    low, median, high = (
        amounts.money(history[f"{part}_micro_usd"]) for part in ("low", "median", "high")
    )
    number = history["num_jobs"]
    jobs = "the only earlier job" if number == 1 else f"the last {number} jobs"
    return f"{median} ({low} to {high}), as {jobs} of this {history['basis']} took"


job_commands.register(app)
