"""Why a job is in its state, in sentences, from what the API shows of it. Pure."""

from services.gateway.rest import models


def explanation(shown: models.Job) -> models.Explanation:
    """The one sentence that answers 'why does it not run?', and why its last attempt failed."""
    now = sentence(shown)
    why = shown.runs[-1].detail if shown.runs else None
    is_said = why is not None and why in now
    text = ". ".join(filter(None, (now, "" if is_said else last_failure(shown))))
    return models.Explanation(
        job_id=shown.job_id,
        state=shown.state,
        text=text,
        waiting=shown.waiting,
        refusal=shown.refusal,
        alerts=shown.alerts,
        warnings=shown.warnings,
    )


def sentence(shown: models.Job) -> str:
    """What it does or waits for now, and what is wrong with that."""
    return ". ".join(filter(None, (explain(shown), silence(shown), unreachable(shown))))


def unreachable(shown: models.Job) -> str:
    """Why nothing is known of a run that holds its slots."""
    run = _live_run(shown)
    if run is None or not run.unreachable:
        return ""
    return f"Attempt {run.attempt} keeps its slots and waits: {run.unreachable}"


def silence(shown: models.Job) -> str:
    """Since when a run that holds its slots has sent nothing."""
    run = _live_run(shown)
    if run is None or run.state != "suspect" or run.silent_since is None:
        return ""
    return f"Nothing was heard of its pods since {run.silent_since:%Y-%m-%d %H:%M:%S} UTC"


def _live_run(shown: models.Job) -> models.Run | None:
    run = shown.runs[-1] if shown.runs else None
    return None if run is None or run.ended_at is not None else run


def last_failure(shown: models.Job) -> str:
    """Why the last attempt that ended has failed, where the job itself does not say it."""
    ended = [run for run in shown.runs if run.ended_at is not None]
    if shown.finished_at is not None or not ended:
        return ""
    run = ended[-1]
    if run.state not in ("failed", "lost") and not (run.state == "interrupted" and run.detail):
        return ""
    verb = {"failed": "failed", "lost": "was lost", "interrupted": "was interrupted"}[run.state]
    return f"Attempt {run.attempt} {verb}" + (f": {run.detail}" if run.detail else "")


def explain(shown: models.JobSummary) -> str:
    if shown.refusal is not None:
        return f"The request was refused: {shown.refusal.detail}"
    if shown.waiting is not None:
        if shown.state == "starting":
            return f"Attempt {shown.attempt} waits: {shown.waiting.detail}"
        position, when = shown.waiting.queue_position, shown.waiting.not_before_at
        notes = (
            f"not before {when:%Y-%m-%d %H:%M:%S} UTC" if when else "",
            f"number {position} in the queue" if position else "",
        )
        told = ", ".join(filter(None, notes))
        return shown.waiting.detail + (f" ({told})" if told else "")
    if shown.is_cancelling:
        return "Cancel requested; the job is saving a checkpoint and stopping"
    if shown.is_stopping:
        return "Early stop requested; the run is ending"
    if shown.is_pausing:
        return "Pause requested; the run is saving a checkpoint and stopping"
    alerts = shown.alerts if isinstance(shown, models.Job) else ()
    texts = {
        "submitted": "The request was sent to the scheduler",
        "queued": "Waiting for the scheduler's next decision",
        "starting": f"Attempt {shown.attempt} is starting its pods",
        "running": "; ".join(
            [f"Attempt {shown.attempt} is running", *(alert.detail for alert in alerts)]
        ),
        "succeeded": "Training is complete",
        "failed": f"Failed: {shown.detail}",
        "paused": "Paused; it holds no slots and waits for a resume"
        + (f": {shown.detail}" if shown.detail else ""),
        "stopped": "Stopped early" + (f": {shown.detail}" if shown.detail else ""),
        "cancelled": "Cancelled" + (f": {shown.detail}" if shown.detail else ""),
    }
    return texts.get(shown.state, shown.state.capitalize())
