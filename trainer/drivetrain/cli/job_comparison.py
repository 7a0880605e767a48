"""`drivetrain job compare`: jobs side by side."""

from collections.abc import Sequence
from typing import Annotated

import typer

from drivetrain.cli import completing, session
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.job_view import charged
from drivetrain.cli.names import find_job
from drivetrain.cli.output import Column, Format, Item, text_of, write_list, write_value
from drivetrain.cli.session import JOB_HELP, OutputOption, example

MAX_JOBS = 10


def compare(
    jobs: Annotated[
        list[str],
        typer.Argument(metavar="JOB...", help=JOB_HELP, autocompletion=completing.jobs),
    ],
    output: OutputOption = Format.TABLE,
) -> None:
    """Compare jobs: what differs in what they ran, what it gave, what it cost."""
    with session.connect() as gateway:
        found = list(dict.fromkeys(find_job(gateway, name) for name in jobs))
        if not 2 <= len(found) <= MAX_JOBS:
            what = "one job has nothing to compare with" if len(found) == 1 else "too many jobs"
            raise InvalidInput(what, fix=f"name two to {MAX_JOBS}")
        compared = gateway.get("/v1/comparison", {"job_id": found})
    if output is Format.TABLE:
        write_list(_lines(compared), _columns(compared["jobs"]), output, "")
    else:
        write_value(compared, output)


def _lines(compared: Item) -> list[Item]:
    """What it gave, the hyperparameters, and what else differs."""
    jobs = compared["jobs"]
    bests = [job["best"] or {} for job in jobs]
    metrics = {best["name"] for best in bests if best}
    facts: list[tuple[str, list[str]]] = [
        ("name", [text_of(job["name"]) for job in jobs]),
        ("state", [job["state"] for job in jobs]),
        (" or ".join(sorted(metrics)) or "metric", [text_of(best.get("value")) for best in bests]),
        ("steps", [text_of((job["progress"] or {}).get("step")) for job in jobs]),
        ("charged", [charged(job) for job in jobs]),
    ]
    facts += [
        (line["name"], line["values"])
        for line in compared["lines"]
        if line["is_hyperparameter"] or line["differs"]
    ]
    return [{"fact": fact, "values": values} for fact, values in facts]


def _columns(jobs: Sequence[Item]) -> list[Column]:
    def value(at: int) -> Column:
        return Column(jobs[at]["job_id"], lambda line: str(line["values"][at]))

    return [Column("", lambda line: str(line["fact"])), *map(value, range(len(jobs)))]


def register(app: typer.Typer) -> None:
    """Add this verb to `drivetrain job`."""
    app.command(epilog=example("drivetrain job compare digits digits-with-adam"))(compare)
