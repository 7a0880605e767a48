"""How a job is shown: the columns of lists, and the rows of one job."""

from datetime import UTC, datetime
from typing import Any

from drivetrain.cli import amounts, waiting
from drivetrain.cli.output import Column, Item, field_column, text_of
from drivetrain_schemas.reports import BEGINS_WITH

WORD = {BEGINS_WITH: "files"}  # of a warning


def rows_of(job: Item, page: str) -> list[tuple[str, str]]:
    """One job in full; `page` is the address of its page."""
    result: Any = job.get("result") or {}
    rows = [
        ("job", job["job_id"]),
        ("name", text_of(job.get("name"))),
        ("state", waiting.as_text(waiting.status_of_job(job))),
        ("page", page),
        ("devices", f"{text_of(job.get('devices'))} of pool {text_of(job.get('pool'))}"),
        ("submitted", amounts.moment(job.get("submitted_at"))),
        ("finished", amounts.moment(job.get("finished_at"))),
        ("charged", charged(job)),
    ]
    if job.get("project"):
        rows.append(("project", job["project"]))
    if job.get("tags"):
        rows.append(("tags", ", ".join(job["tags"])))
    if job.get("note"):
        rows.append(("note", job["note"]))
    if job.get("study_id"):
        rows.append(("trial", f"{job['trial_number']} of {job['study_id']}"))
    if job.get("detail"):
        rows.append(("detail", job["detail"]))
    if job.get("refusal"):
        rows.append(("refused", f"{job['refusal']['reason']}: {job['refusal']['detail']}"))
    rows += [(f"run {run['attempt']}", _run_in_words(run)) for run in job.get("runs") or ()]
    rows += [(f"alert {one['alert']}", one["detail"]) for one in job.get("alerts") or ()]
    rows += [(WORD.get(w["warning"], "warning"), w["detail"]) for w in job.get("warnings") or ()]
    if num_dropped := job.get("num_dropped_samples"):
        rows.append(("dropped", f"{num_dropped:,} samples; the buffer was full"))
    if num_bytes := job.get("num_dropped_log_bytes"):
        rows.append(("log", f"{num_bytes:,} bytes left out; more than logs.kib_per_second"))
    values = sorted((result.get("metrics") or {}).items())
    if values:
        shown = ", ".join(f"{name} {amounts.number(value)}" for name, value in values)
        rows.append(("result", shown))
    if best := best_of(job):
        rows.append(("best", best))
    if job["state"] == "succeeded":
        rows.append(("seed", seed_of(result)))
    return rows


def seed_of(result: Item) -> str:
    """Which seed was used, and which random numbers the script seeded itself."""
    seed = result.get("seed")
    if not seed:
        return "unknown: the program decides, and does not say"
    own = f"; seeded by the script itself: {', '.join(seed['by_script'])}"
    return str(seed["number"]) + (own if seed["by_script"] else "")


def best_of(job: Item) -> str | None:
    """The best value of the metric, and whether its weights are in a checkpoint."""
    best = job.get("best") or {}
    if best.get("value") is None:
        return None
    text = f"{best['name']} {amounts.number(best['value'])} at step {best['step']}"
    if best.get("is_saved", True):
        return text
    text += " (not saved"
    if saved := best.get("saved"):
        text += f"; best saved: {amounts.number(saved['value'])} at step {saved['step']}"
    return text + ")"


def progress_of(job: Item) -> Item:
    """How far it is; empty before its first step."""
    progress: Item = job.get("progress") or {}
    return progress


def _run_in_words(run: Item) -> str:
    parts = [run["state"]]
    if run.get("exit_code") is not None:
        parts.append(f"exit code {run['exit_code']} of rank {text_of(run.get('rank'))}")
    if run.get("signal") is not None:
        parts.append(f"signal {run['signal']} of rank {text_of(run.get('rank'))}")
    if run.get("detail"):
        parts.append(run["detail"])
    return ", ".join(parts)


def _steps(job: Item) -> str:
    progress = progress_of(job)
    return amounts.steps(progress.get("step"), progress.get("max_steps"))


def _left(job: Item) -> str:
    return amounts.duration(waiting.status_of_job(job).eta_seconds)


def _numbers(series: Item) -> list[float]:
    """Values without NaN and the infinities, which are strings."""
    return [value for value in series["values"] if not isinstance(value, str)]


def _at(values: list[Any], index: int) -> Any:
    return values[index] if values else None


def charged(job: Item) -> str:
    """Slots are charged when they are released: no charge of a job that runs is not no cost."""
    return amounts.money(job.get("charged_micro_usd") or (0 if job.get("finished_at") else None))


JOB_COLUMNS = (
    field_column("JOB", "job_id"),
    field_column("NAME", "name"),
    field_column("STATE", "state"),
    Column("STEP", _steps, is_number=True),
    Column("LEFT", _left, is_number=True),
    Column("CHARGED", charged, is_number=True),
    Column("SUBMITTED", lambda job: amounts.moment(job.get("submitted_at"))),
)


def _last_moment(series: Item) -> str:
    """What a pod uses is logged by Unix time."""
    at = _at(series["steps"], -1)
    return amounts.moment(None if at is None else datetime.fromtimestamp(at, UTC).isoformat())


METRIC_COLUMNS = (
    field_column("NAME", "name"),
    field_column("SAMPLES", "num_samples", is_number=True),
    Column("STEP", lambda series: text_of(_at(series["steps"], -1)), is_number=True),
    Column("LAST", lambda series: text_of(_at(series["values"], -1)), is_number=True),
    Column("LOWEST", lambda series: text_of(min(_numbers(series), default=None)), is_number=True),
    Column("HIGHEST", lambda series: text_of(max(_numbers(series), default=None)), is_number=True),
)
SYSTEM_COLUMNS = (*METRIC_COLUMNS[:2], Column("AT", _last_moment), *METRIC_COLUMNS[3:])
