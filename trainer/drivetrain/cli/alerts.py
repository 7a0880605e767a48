"""`drivetrain alert`: list, silence, unsilence, silences."""

import re
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drivetrain.cli import amounts, completing, session
from drivetrain.cli.accepted import write_accepted
from drivetrain.cli.errors import InvalidInput, NotFound
from drivetrain.cli.names import find_job
from drivetrain.cli.output import Column, Format, Item, field_column, write_list
from drivetrain.cli.session import JOB_HELP, LimitOption, OutputOption, example, segment

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway

app = session.make_group("See what needs attention, and silence what is known.")

ALL = "all"
_UNITS = {"m": 60, "h": 3600, "d": 86_400}

AlertArgument = Annotated[
    str,
    typer.Argument(
        metavar="ALERT",
        help="The alert: straggler, diverging, stalled ..., or all.",
        autocompletion=completing.alerts_or_all,
    ),
]
JobOption = Annotated[
    str | None,
    typer.Option(
        "--job",
        metavar="JOB",
        help=f"Only of this job. {JOB_HELP}",
        autocompletion=completing.jobs,
    ),
]
ProjectOption = Annotated[str | None, typer.Option("--project", help="Only of this project.")]


def _silence(alert: Item) -> str:
    return amounts.moment(alert["silence"]["ends_at"]) if alert["silence"] else "-"


def _subject(silence: Item) -> str:
    if silence["project"]:
        return f"project {silence['project']}"
    return silence["job_id"] or "all jobs"


ALERT_COLUMNS = (
    field_column("ALERT", "alert"),
    field_column("STATE", "state"),
    field_column("JOB", "job_id"),
    field_column("NAME", "job_name"),
    Column("SINCE", lambda alert: amounts.moment(alert["raised_at"])),
    Column("SILENCED UNTIL", _silence),
    field_column("DETAIL", "detail"),
)
SILENCE_COLUMNS = (
    Column("ALERT", lambda silence: silence["alert"] or ALL),
    Column("OF", _subject),
    Column("UNTIL", lambda silence: amounts.moment(silence["ends_at"])),
    field_column("REASON", "reason"),
)


@app.command(name="list", epilog=example("drivetrain alert list --project vision"))
def list_alerts(
    state: Annotated[
        str, typer.Option("--state", help="open, ended (or its run has) or all.")
    ] = "open",
    job: JobOption = None,
    project: ProjectOption = None,
    alert: Annotated[
        str | None,
        typer.Option("--alert", help="Only this one.", autocompletion=completing.alerts),
    ] = None,
    limit: LimitOption = 50,
    output: OutputOption = Format.TABLE,
) -> None:
    """List alerts, newest first: the open ones, if nothing else is asked for."""
    filters = {"state": None if state == ALL else state, "project": project, "alert": alert}
    with session.connect() as gateway:
        if job is not None:
            filters["job_id"] = find_job(gateway, job)
        alerts = list(islice(gateway.pages("/v1/alerts", "alerts", filters), limit))
    write_list(alerts, ALERT_COLUMNS, output, "no open alerts" if state == "open" else "no alerts")


@app.command(
    epilog=example("drivetrain alert silence straggler --job digits --for 8h --reason 'known node'")
)
def silence(
    alert: AlertArgument,
    job: JobOption = None,
    project: ProjectOption = None,
    lasts: Annotated[
        str, typer.Option("--for", metavar="TIME", help="30m, 8h or 3d; at most 30d.")
    ] = "2h",
    reason: Annotated[str, typer.Option("--reason", help="Why; shown with the alert.")] = "",
    output: OutputOption = Format.TABLE,
) -> None:
    """Call nobody for an alert until a time: of a job, of a project, or of all jobs.

    What is open then is sent. Silencing the same again changes how long.
    """
    seconds = _seconds(lasts)
    with session.connect() as gateway:
        chosen = _chosen(gateway, alert, job, project)
        body = {name: value for name, value in chosen.items() if value is not None}
        body |= {"for_seconds": seconds, "reason": reason}
        answer = gateway.post("/v1/silences", body)
    done = f"is silenced until {amounts.moment(answer['ends_at'])}"
    write_accepted(answer, alert, done, output)


@app.command(epilog=example("drivetrain alert unsilence straggler --job digits"))
def unsilence(
    alert: AlertArgument,
    job: JobOption = None,
    project: ProjectOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """End a silence now. Name what was silenced, as `drivetrain alert silences` shows it."""
    with session.connect() as gateway:
        chosen = _chosen(gateway, alert, job, project)
        silences = gateway.get("/v1/silences")["silences"]
        found = [each for each in silences if all(each[name] == chosen[name] for name in chosen)]
        if not found:
            raise NotFound("there is no such silence", fix="see: drivetrain alert silences")
        answer = gateway.post(f"/v1/silences/{segment(found[0]['silence_id'])}/end")
    write_accepted(answer, alert, "is no longer silenced", output)


@app.command(epilog=example("drivetrain alert silences"))
def silences(output: OutputOption = Format.TABLE) -> None:
    """List the silences in force."""
    with session.connect() as gateway:
        answer = gateway.get("/v1/silences")
    write_list(answer["silences"], SILENCE_COLUMNS, output, "no silences")


def _chosen(gateway: "Gateway", alert: str, job: str | None, project: str | None) -> dict[str, Any]:
    if alert not in (names := completing.alerts_or_all("")):
        raise InvalidInput(f"{alert:.40} is not an alert", fix=f"write one of {', '.join(names)}")
    job_id = None if job is None else find_job(gateway, job, to_change=True)
    return {"alert": None if alert == ALL else alert, "job_id": job_id, "project": project}


def _seconds(text: str) -> int:
    """'90m' -> 5400."""
    from drivetrain_schemas.silences import MAX_SILENCE

    match = re.fullmatch(r"([0-9]{1,6})([mhd])", text)
    if match is None or match[1].strip("0") == "":
        raise InvalidInput(
            f"--for {text:.40} is not a length of time", fix="write for example 30m, 8h or 3d"
        )
    seconds = int(match[1]) * _UNITS[match[2]]
    if seconds > MAX_SILENCE.total_seconds():
        raise InvalidInput(f"--for {text} is too long", fix="write 30d or less")
    return seconds
