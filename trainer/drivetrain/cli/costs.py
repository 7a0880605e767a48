"""`drivetrain cost`: show, pools, fleet, recommendations, report."""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

from drivetrain.cli import amounts, completing, session
from drivetrain.cli.errors import NoAnswer
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

LastOption = Annotated[
    str | None, typer.Option("--last", metavar="DAY", help="In UTC; default: today.")
]
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
                *_storage(spend),
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
        for label, text in (*_storage(report["spend"]), *_unpriced(report["spend"])):
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
    last: LastOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show who had what of each pool: productive, checkpointing, lost, starting, idle.

    The rows of a pool's day add up to what its nodes offered.
    """
    query = {name: day for name, day in (("first", first), ("last", last)) if day is not None}
    with session.connect() as gateway:
        answer = gateway.get("/v1/cost/pools", query)
    write_list(answer["shares"], POOL_COLUMNS, output, "no nodes on these days")
    if output is Format.TABLE and answer["shares"]:
        total = sum(share["micro_usd"] for share in answer["shares"])
        idle = sum(share["micro_usd"] for share in answer["shares"] if share["kind"] == "idle")
        write_line(f"{amounts.money(total)} in total, {amounts.money(idle)} of it idle")


class Step(StrEnum):
    HOUR = "hour"
    DAY = "day"


class FleetBy(StrEnum):
    """What a column is of."""

    USE = "use"
    TENANT = "tenant"
    PROJECT = "project"
    JOB = "job"


@app.command(epilog=example("drivetrain cost fleet --by project --step day"))
def fleet(
    step: Annotated[Step, typer.Option("--step", help="What a row is of.")] = Step.HOUR,
    by: Annotated[FleetBy, typer.Option("--by", help="What a column is of.")] = FleetBy.USE,
    pool: Annotated[
        str | None, typer.Option("--pool", metavar="POOL", help="Default: all pools.")
    ] = None,
    first: Annotated[
        str | None,
        typer.Option(
            "--first", metavar="DAY", help="Default: yesterday; by day, 29 days before --last."
        ),
    ] = None,
    last: LastOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show the slot hours of each hour or day: what they were used for, or who had them.

    The columns of a row add up to what the nodes offered. The eight projects, or jobs, with most
    have a column each.
    """
    query = {"step": step.value, "by": by.value, "pool": pool, "first": first, "last": last}
    given = {name: value for name, value in query.items() if value is not None}
    with session.connect() as gateway:
        answer = gateway.get("/v1/cost/fleet", given)
    if output is not Format.TABLE:
        write_value(answer, output)
        return
    titles, rows = fleet_table(answer, by)
    columns = [Column("TIME (UTC)", lambda row: row["time"])]
    columns += [Column(title, partial(_slot_hours, title), is_number=True) for title in titles]
    write_list(rows, columns, Format.TABLE, "no nodes on these days")


def fleet_table(answer: Mapping[str, Any], by: FleetBy) -> tuple[list[str], list[dict[str, Any]]]:
    """The titles of columns, and slots x microseconds under each, of the steps that had nodes."""
    rows: list[dict[str, Any]] = [
        {"time": moment[:16].replace("T", " ")} for moment in answer["starts_at"]
    ]
    titles: dict[str, None] = {}
    for series in answer["series"]:
        title = _title(series, by)
        titles[title] = None
        for row, time in zip(rows, series["slot_microseconds"], strict=True):
            row[title] = row.get(title, 0) + time
    return list(titles), [row for row in rows if any(row.get(title) for title in titles)]


def _title(series: Mapping[str, Any], by: FleetBy) -> str:
    if series["kind"] != "held":
        return f"({series['kind']})" if by is not FleetBy.USE else str(series["kind"]).upper()
    name = series["name"] or series["holder"]
    return str(name) if name is not None else f"(no {by.value})"


def _slot_hours(title: str, row: Mapping[str, Any]) -> str:
    time = row.get(title, 0)
    return f"{time / 3_600_000_000:,.2f}" if time else "-"


RECOMMENDATION_COLUMNS = (
    Column("SAVING", lambda item: amounts.money(item["saving_micro_usd"]), is_number=True),
    field_column("JOB", "job_id"),
    field_column("NAME", "job_name"),
    field_column("EVIDENCE", "evidence"),
    field_column("ADVICE", "advice"),
)


@app.command(epilog=example("drivetrain cost recommendations"))
def recommendations(
    first: Annotated[
        str | None, typer.Option("--first", metavar="DAY", help="Default: 29 days before --last.")
    ] = None,
    last: LastOption = None,
    output: OutputOption = Format.TABLE,
) -> None:
    """Show where jobs could cost less, with the evidence."""
    query = {name: day for name, day in (("first", first), ("last", last)) if day is not None}
    with session.connect() as gateway:
        answer = gateway.get("/v1/cost/recommendations", query)
    items = answer["recommendations"]
    write_list(items, RECOMMENDATION_COLUMNS, output, "nothing to recommend")


class ReportFormat(StrEnum):
    """`focus` is CSV with the columns of FOCUS 1.0; `jsonl` has a JSON document on each line."""

    TABLE = "table"
    CSV = "csv"
    FOCUS = "focus"
    JSONL = "jsonl"


class By(StrEnum):
    """What a line of the report is of."""

    TENANT = "tenant"
    PROJECT = "project"
    STUDY = "study"
    JOB = "job"


KINDS = ("productive", "checkpointing", "lost", "starting", "storage", "platform", "idle")
REPORT_COLUMNS = (
    Column("OF", lambda item: item["of"]),
    field_column("POOL", "pool"),
    *(
        Column(kind.upper(), partial(lambda kind, item: amounts.money(item[kind]), kind), True)
        for kind in KINDS
    ),
    Column("COST", lambda item: amounts.money(item["cost"]), is_number=True),
)


@app.command(epilog=example("drivetrain cost report --month 2026-02 --format focus"))
def report(
    month: Annotated[
        str | None, typer.Option("--month", metavar="MONTH", help="Such as 2026-02; or --first.")
    ] = None,
    first: Annotated[
        str | None, typer.Option("--first", metavar="DAY", help="Default: the month's first.")
    ] = None,
    last: LastOption = None,
    by: Annotated[By, typer.Option("--by", help="What a line is of.")] = By.PROJECT,
    form: Annotated[
        ReportFormat, typer.Option("--format", help="focus: CSV with the columns of FOCUS 1.0.")
    ] = ReportFormat.TABLE,
) -> None:
    """Who pays for what: all time of each pool, what it was used for, and what was idle.

    The lines of a pool's day add up to its cost exactly. A table has the sums of all days.
    """
    is_table = form is ReportFormat.TABLE
    query = {
        "month": month,
        "first": first,
        "last": last,
        "by": by.value,
        "format": "jsonl" if is_table else form.value,
    }
    with session.connect() as gateway:
        pieces = gateway.download("/v1/cost/report", query)
        if is_table:
            items = sums(_lines(pieces), by)
            write_list(items, REPORT_COLUMNS, Format.TABLE, "no nodes on these days")
            write_line(f"{amounts.money(sum(item['cost'] for item in items))} in total")
            return
        for piece in pieces:
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()


def sums(lines: Iterable[Mapping[str, Any]], by: By) -> list[dict[str, Any]]:
    """What each had of each pool, in micro-dollars by kind; the most expensive first."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for line in lines:
        of = _of(line, by)
        pool = line["pool"] or "-"
        item = found.setdefault((of, pool), {"of": of, "pool": pool, **dict.fromkeys(KINDS, 0)})
        item[line["kind"]] = item.get(line["kind"], 0) + line["micro_usd"]
        item["cost"] = item.get("cost", 0) + line["micro_usd"]
    return sorted(found.values(), key=lambda item: (-item["cost"], item["of"], item["pool"]))


def _of(line: Mapping[str, Any], by: By) -> str:
    if line["tenant_id"] is None:
        return "(nobody)"
    name = line["job_name"] if by is By.JOB else None
    of = line[by.value if by is By.PROJECT else f"{by.value}_id"]
    if of is None:
        is_others = line["tenant_id"] == "others"
        return "(others)" if is_others else f"(no {by.value})"
    return f"{name} {of}" if name else str(of)


def _lines(pieces: Iterable[bytes]) -> Iterator[dict[str, Any]]:
    rest = b""
    for piece in pieces:
        *whole, rest = (rest + piece).split(b"\n")
        for line in map(json.loads, whole):
            if line.get("is_complete"):
                return
            yield line
    raise NoAnswer("the report broke off", fix="ask for it again")


def _platform(spend: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What is not charged: slots that were held after their pods had ended."""
    amount = spend.get("platform_micro_usd", 0)
    return [("not charged", f"{amounts.money(amount)} (the platform's own cost)")] if amount else []


def _storage(spend: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What keeping checkpoints was charged, beside the slots."""
    amount = spend.get("storage_micro_usd", 0)
    return [("stored checkpoints", amounts.money(amount))] if amount else []


def _unpriced(spend: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Slots without a known price, which the amounts leave out."""
    return [
        ("unpriced", f"{kind['device_type']} in pool {kind['pool']}: no price, counted as 0")
        for kind in spend.get("unpriced", ())
    ]
