"""`drivetrain budget`: set, list, remove."""

import re
from typing import Annotated, Any

import typer

from drivetrain.cli import amounts, session
from drivetrain.cli.accepted import write_accepted
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.names import find_job, find_study
from drivetrain.cli.output import Column, Format, Item, field_column, write_list
from drivetrain.cli.session import OutputOption, example, segment

app = session.make_group("Limit what a tenant, a project, a study or a job may spend.")


def _used(budget: Item) -> str:
    if budget["spent_micro_usd"] is None:
        return "-"
    return f"{100 * budget['spent_micro_usd'] // budget['limit_micro_usd']} %"


def _subject(budget: Item) -> str:
    if budget.get("project"):
        return f"project {budget['project']}"
    return budget["study_id"] or budget["job_id"] or "all jobs"


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The budget's name.")]
BUDGET_COLUMNS = (
    field_column("BUDGET", "name"),
    Column("OF", _subject),
    field_column("PERIOD", "period"),
    Column("SPENT", lambda budget: amounts.money(budget["spent_micro_usd"]), is_number=True),
    Column("LIMIT", lambda budget: amounts.money(budget["limit_micro_usd"]), is_number=True),
    Column("USED", _used, is_number=True),
    field_column("THEN", "at_limit"),
    Column("USED UP", lambda budget: amounts.moment(budget["used_up_at"])),
    Column("EARLIEST", lambda budget: amounts.moment(budget.get("used_up_earliest"))),
    Column("LATEST", lambda budget: amounts.moment(budget.get("used_up_latest"))),
)


@app.command(name="set", epilog=example("drivetrain budget set vision --limit 500 --then stop"))
def set_budget(
    name: NameArgument,
    limit: Annotated[str, typer.Option("--limit", metavar="DOLLARS", help="What may be spent.")],
    period: Annotated[str, typer.Option("--period", help="day, month (of UTC) or total.")] = (
        "month"
    ),
    study: Annotated[str | None, typer.Option("--study", help="Only this study's jobs.")] = None,
    job: Annotated[str | None, typer.Option("--job", help="Only this job.")] = None,
    project: Annotated[
        str | None, typer.Option("--project", help="Only this project's jobs.")
    ] = None,
    warn: Annotated[
        list[int] | None,
        typer.Option(
            "--warn", metavar="PERCENT", help="Tell when this much is spent. [default: 80]"
        ),
    ] = None,
    then: Annotated[
        str,
        typer.Option(
            "--then", help="At the limit: warn, hold (no more runs), stop (running jobs, too)."
        ),
    ] = "warn",
    output: OutputOption = Format.TABLE,
) -> None:
    """Create a budget, or change the one of this name."""
    spec: dict[str, Any] = {
        "limit_micro_usd": micro_usd(limit),
        "period": period,
        "at_limit": then,
    }
    if warn is not None:
        spec["warn_percents"] = warn
    if project is not None:
        spec["project"] = project
    with session.connect() as gateway:
        if study is not None:
            spec["study_id"] = find_study(gateway, study, to_change=True)
        if job is not None:
            spec["job_id"] = find_job(gateway, job, to_change=True)
        answer = gateway.post("/v1/budgets", {"name": name, "spec": spec})
    write_accepted(answer, name, "is set", output)


@app.command(name="list", epilog=example("drivetrain budget list"))
def list_budgets(output: OutputOption = Format.TABLE) -> None:
    """List budgets, what is spent of them, and when they were or will be used up."""
    with session.connect() as gateway:
        answer = gateway.get("/v1/budgets")
    write_list(answer["budgets"], BUDGET_COLUMNS, output, "no budgets")


@app.command(epilog=example("drivetrain budget remove vision"))
def remove(name: NameArgument, output: OutputOption = Format.TABLE) -> None:
    """Remove a budget, and with it what it holds back."""
    with session.connect() as gateway:
        answer = gateway.post(f"/v1/budgets/{segment(name)}/remove")
    write_accepted(answer, name, "is removed", output)


def micro_usd(dollars: str) -> int:
    """'12.5' -> 12500000; exact, so not through a float."""
    match = re.fullmatch(r"\$?(\d{1,9})(?:\.(\d{1,6}))?", dollars)
    if match is None:
        raise InvalidInput(
            f"--limit {dollars:.40} is not an amount of dollars",
            fix="write for example 500 or 12.50, with at most 6 decimals",
        )
    return int(match[1]) * 1_000_000 + int((match[2] or "").ljust(6, "0"))
