"""`drivetrain cost`: show, pools."""

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


POOL_COLUMNS = (
    field_column("DAY", "day"),
    field_column("POOL", "pool"),
    field_column("DEVICE", "device_type"),
    field_column("KIND", "kind"),
    Column("TENANT", lambda share: share["tenant_id"] or "-"),
    Column("SLOT HOURS", lambda share: f"{share['slot_seconds'] / 3600:,.2f}", is_number=True),
    Column("COST", lambda share: amounts.money(share["micro_usd"]), is_number=True),
)


@app.command(epilog=example("drivetrain cost pools --first 2026-02-01 --last 2026-02-28"))
def pools(
    first: Annotated[
        str | None, typer.Option("--first", metavar="DAY", help="Default: six days before --last.")
    ] = None,
    last: Annotated[
        str | None, typer.Option("--last", metavar="DAY", help="In UTC; default: today.")
    ] = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show who had what of each pool: productive, checkpointing, lost, starting, idle.

    The rows of a pool's day add up to what its nodes offered.
    """
    query = {name: day for name, day in (("first", first), ("last", last)) if day is not None}
    with session.connect() as gateway:
        answer = gateway.get("/v1/cost/pools", query)
    write_list(answer["shares"], POOL_COLUMNS, output, "no nodes in these days")
    if output is Format.TABLE and answer["shares"]:
        total = sum(share["micro_usd"] for share in answer["shares"])
        idle = sum(share["micro_usd"] for share in answer["shares"] if share["kind"] == "idle")
        write_line(f"{amounts.money(total)} in total, {amounts.money(idle)} of it idle")


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
