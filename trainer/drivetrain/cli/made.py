"""What a verb prints that made a job: where it is and, with --wait, how it ended."""

from typing import TYPE_CHECKING, Annotated

import typer

from drivetrain.cli import amounts, waiting
from drivetrain.cli.errors import JobFailed, Refused, field_problems
from drivetrain.cli.job_view import best_of, progress_of
from drivetrain.cli.output import Format, Item, write_line, write_note, write_value
from drivetrain.cli.pages import page_link
from drivetrain.cli.session import segment

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway

WaitOption = Annotated[bool, typer.Option("--wait", help="Wait until the job has ended.")]


def announce(gateway: "Gateway", job: Item, output: Format) -> None:
    """The id and the page, for people."""
    if output is Format.TABLE:
        write_line(job["job_id"])
        write_line(page_link(gateway, job["job_url"]))


def conclude(gateway: "Gateway", job: Item, output: Format, *, wait: bool) -> None:
    """The document, for programs; where it is waited for, as it ended. Raises JobFailed and Refused
    if it did not succeed.
    """
    if wait:
        job = _wait(gateway, job["job_id"])
    if output is not Format.TABLE:
        write_value(job, output)
    if wait:
        _finish(job)


def _wait(gateway: "Gateway", job_id: str) -> Item:
    path = f"/v1/jobs/{segment(job_id)}"
    return waiting.wait(
        lambda: gateway.get(path, tries=1),
        waiting.status_of_job,
        waiting.FINAL_JOB_STATES,
        hint=f"the job continues; see: drivetrain job show {job_id}",
    )


def _finish(job: Item) -> None:
    """Print the result of a finished job; raises if it did not succeed."""
    state = job["state"]
    if state == "rejected":
        raise _refusal(job["refusal"])
    if state != "succeeded":
        fix = f"see: drivetrain job logs {job['job_id']}"
        raise JobFailed(f"the job {state}: {job.get('detail') or 'no reason given'}", fix=fix)
    step = progress_of(job).get("step")
    parts = [] if step is None else [f"step {step}"]
    if best := best_of(job):
        parts.append(f"best {best}")
    parts.append(f"charged {amounts.money(job.get('charged_micro_usd'))}")
    write_note(f"succeeded: {', '.join(parts)}")
    write_note(f"what it wrote: drivetrain job files {job['job_id']}")


def _refusal(refusal: Item) -> Refused:
    return Refused(
        f"{refusal['reason']}: {refusal['detail']}", problems=field_problems(refusal["errors"])
    )
