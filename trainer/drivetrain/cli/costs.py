"""`drivetrain cost`: show."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from drivetrain.cli import amounts, completing, session
from drivetrain.cli.names import find_job
from drivetrain.cli.output import (
    Column,
    Format,
    field_column,
    write_line,
    write_list,
    write_record,
    write_value,
)
from drivetrain.cli.session import JOB_HELP, OutputOption, example, segment

app = session.make_group("Show what jobs cost.")

COST_COLUMNS = (
    field_column("JOB", "job_id"),
    field_column("NAME", "name"),
    Column("CHARGED", lambda item: amounts.money(item["charged_micro_usd"]), is_number=True),
)


@app.callback()
def cost() -> None:
    """Keeps `show` a subcommand, although it is the only one so far."""


@app.command(epilog=example("drivetrain cost show digits"))
def show(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="JOB", help=f"{JOB_HELP} Without it, all jobs.", autocompletion=completing.jobs
        ),
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show what was charged, and what is accruing for slots that are held now."""
    with session.connect() as gateway:
        if job is not None:
            spend = gateway.get(f"/v1/jobs/{segment(find_job(gateway, job))}/cost")
            rows = [
                ("charged", amounts.money(spend["charged_micro_usd"])),
                ("accruing", amounts.money(spend["accruing_micro_usd"])),
                ("total", amounts.money(spend["total_micro_usd"])),
                *_platform(spend),
                *_unpriced(spend),
            ]
            write_record(spend, output, rows)
            return
        report = gateway.get("/v1/cost", {"by": "job"})
    if output is not Format.TABLE:
        write_value(report, output)
        return
    write_list(report["items"], COST_COLUMNS, output, "no charges yet")
    num_listed, num_jobs = len(report["items"]), report["num_jobs"]
    if num_listed < num_jobs:
        write_line(f"the last {num_listed:,} of {num_jobs:,} jobs; the sum is of all")
    write_line(f"charged {amounts.money(report['charged_micro_usd'])}")
    if report.get("spend"):
        write_line(f"accruing {amounts.money(report['spend']['accruing_micro_usd'])}")
        for label, text in _unpriced(report["spend"]):
            write_line(f"{label} {text}")


def _platform(spend: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is not charged: slots that were held after their pods had ended."""
    amount = spend.get("platform_micro_usd", 0)
    return [("not charged", f"{amounts.money(amount)} (the platform's own cost)")] if amount else []


def _unpriced(spend: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Slots without a known price, which the amounts leave out."""
    return [
        ("unpriced", f"{kind['device_type']} in pool {kind['pool']}: no price, counted as 0")
        for kind in spend.get("unpriced", ())
    ]
