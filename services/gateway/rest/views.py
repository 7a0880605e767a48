"""Rows of the read model as the models of the API's responses. Pure, one function per model."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

from drivetrain_schemas.jobs import JobSpec
from drivetrain_schemas.redaction import HIDDEN, looks_secret, redacted
from drivetrain_schemas.studies import StudySpec
from services.gateway.context import Submission
from services.gateway.core import bytes_shown
from services.gateway.core.descriptions import hyperparameters
from services.gateway.core.narration import narrate
from services.gateway.core.progress import eta_seconds, steps_per_second
from services.gateway.rest import models
from services.gateway.rest.problems import FieldProblem
from services.gateway.stored_files import StoredFiles

Row = Mapping[str, Any]
M = TypeVar("M")


def job_fields(row: Row, base_url: str, value: models.MetricValue | None = None) -> dict[str, Any]:
    """The fields that summary and job have in common."""
    return _fields(
        models.JobSummary,
        row,
        is_stopping=row["requested"] == "stop",
        is_pausing=row["requested"] == "pause",
        job_url=f"{base_url}/jobs/{row['job_id']}",
        progress=progress(row),
        waiting=waiting(row),
        refusal=refusal(row),
        tags=row["tags"] or [],
        note=row["note"] or "",
        value=value,
        detail=redacted(row["detail"]),
    )


def job_summary(row: Row, base_url: str) -> models.JobSummary:
    value = None
    if row.get("value") is not None:
        value = models.MetricValue(name=row["value_name"], value=row["value"])
    return models.JobSummary(**job_fields(row, base_url, value))


def job(
    row: Row,
    base_url: str,
    best: models.Best | None = None,
    runs: Sequence[Row] = (),
    alerts: Sequence[models.Alert] = (),
    warnings: Sequence[Row] = (),
) -> models.Job:
    return models.Job(
        **job_fields(row, base_url),
        spec=redacted(row["spec"]),
        hyperparameters=redacted(hyperparameters(row["spec"], row.get("surroundings"))),
        result=row["result"],
        best=best,
        num_dropped_samples=row["num_dropped_samples"] or 0,
        num_dropped_log_bytes=row["num_dropped_log_bytes"] or 0,
        runs=[_of(models.Run, redacted(run)) for run in runs],
        alerts=list(alerts),
        warnings=[_of(models.Warned, redacted(row)) for row in warnings],
    )


def submitted_job(submission: Submission, tenant_id: str, base_url: str) -> models.Job:
    """A job that the read model does not know yet, though its request was sent."""
    assert isinstance(submission.spec, JobSpec)
    resources = submission.spec.resources
    unknown = dict.fromkeys(
        (*models.JobSummary.model_fields, *_PROGRESS, *_WAITING, *_REFUSAL, "heard_at", "result")
    )
    row = {
        **unknown,
        "num_dropped_samples": 0,
        "num_dropped_log_bytes": 0,
        "job_id": submission.subject_id,
        "tenant_id": tenant_id,
        "request_id": submission.request_id,
        "name": submission.spec.name,
        "spec": submission.spec.model_dump(mode="json"),
        "pool": resources.pool,
        "devices": resources.devices,
        "priority": submission.spec.priority,
        "tags": list(submission.spec.tags),
        "project": submission.spec.project,
        "state": "submitted",
        "is_cancelling": False,
        "requested": None,
        "charged_micro_usd": 0,
        "submitted_at": submission.submitted_at,
    }
    return job(row, base_url)


_PROGRESS = ("step", "max_steps", "phase", "epoch", "first_step", "first_step_at", "step_at")
_WAITING = ("waiting_reason", "waiting_detail", "holders", "not_before_at")
_REFUSAL = ("refused_reason", "refused_detail", "refused_errors")


def progress(row: Row) -> models.Progress | None:
    """None where nothing was reported and no end is known."""
    step, max_steps = row["step"], row["max_steps"]
    result = row["result"] or {}
    if row["state"] == "succeeded" and result.get("step") is not None:
        step = max(step or 0, result["step"])
    if step is None and max_steps is None:
        return None
    is_running = row["state"] == "running"
    pace = steps_per_second(row["first_step"], row["first_step_at"], row["step"], row["step_at"])
    return models.Progress(
        step=step,
        max_steps=max_steps,
        fraction=min(1.0, (step or 0) / max_steps) if max_steps else None,
        epoch=row["epoch"],
        phase=row["phase"] if row["finished_at"] is None else None,
        steps_per_second=pace,
        eta_seconds=eta_seconds(step, max_steps, pace) if is_running else None,
        heard_at=row["heard_at"],
    )


def waiting(row: Row) -> models.Waiting | None:
    if row["waiting_reason"] is None:
        return None
    return models.Waiting(
        reason=row["waiting_reason"],
        detail=redacted(row["waiting_detail"] or ""),
        queue_position=None,  # changes without an event: the scheduler is asked for it
        holders=[models.Holder(**holder) for holder in row["holders"] or ()],
        not_before_at=row["not_before_at"],
    )


def refusal(row: Row) -> models.Refusal | None:
    """Of a job or a study."""
    if row["state"] != "rejected":
        return None
    return models.Refusal(
        reason=row["refused_reason"],
        detail=redacted(row["refused_detail"]),
        errors=[FieldProblem(**redacted(error)) for error in row["refused_errors"] or ()],
    )


def best(
    row: Row, from_checkpoints: tuple[float, int] | None, saved: Row | None
) -> models.Best | None:
    """From the result where there is one; else the best that a checkpoint carries."""
    reported = (row["result"] or {}).get("best")
    if reported is None and row["metric"] is None:
        return None
    if reported is None:
        value, step = from_checkpoints or (None, None)
        reported = {"name": row["metric"], "goal": row["goal"], "value": value, "step": step}
    return models.Best(
        **reported,
        is_saved=saved is not None and saved["value"] == reported["value"],
        saved=None if saved is None else models.SavedBest(**saved),
    )


def timeline_item(row: Row) -> models.TimelineItem:
    payload = redacted(row["payload"])
    sentence = narrate(row["type"], payload)
    return models.TimelineItem(
        event_id=row["event_id"],
        type=row["type"],
        occurred_at=row["occurred_at"],
        text=sentence.text,
        tone=sentence.tone.value,
        detail=sentence.detail,
        data=payload,
    )


def checkpoint(row: Row) -> models.Checkpoint:
    state = "committed"
    if row["deleted_at"] is not None:
        state = "deleted"
    elif row["rejected_reason"] is not None:
        state = "rejected"
    fields = {
        name: row[name]
        for name in models.Checkpoint.model_fields
        if name in row and name != "metrics"
    }
    return models.Checkpoint(
        **{"is_latest": False, "is_best": False} | fields | {"is_best": bool(row.get("is_best"))},
        state=state,
        metrics=row["metrics"] or {},
        detail=row["deleted_reason"] or row["rejected_detail"],
    )


def job_files(job_id: str, stored: StoredFiles | None) -> models.JobFiles:
    if stored is None:
        return models.JobFiles(job_id=job_id)
    listed = stored.files
    files = [
        models.File(
            path=one.path,
            size_bytes=one.size_bytes,
            mode=f"{one.mode:03o}",
            modified_at=_moment(one.modified_at_ns),
            sha256=one.sha256,
        )
        for one in listed.files
    ]
    files += [models.File(path=one.path, target=one.target) for one in listed.links]
    return models.JobFiles(
        job_id=job_id,
        checkpoint_id=stored.checkpoint_id,
        attempt=listed.attempt,
        saved_at=listed.saved_at,
        files=sorted(files, key=lambda file: file.path),
        size_bytes=sum(file.size_bytes for file in files),
        num_left_out=listed.summary.num_left_out,
        left_out=list(listed.summary.left_out),
    )


def _moment(at_ns: int) -> datetime | None:
    """A program may have set any time; None where it has no date."""
    try:
        return datetime.fromtimestamp(at_ns / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return None


def nodes(rows: Sequence[Row], held: Sequence[Row]) -> list[models.Node]:
    """Each node with all its slots, free ones too."""
    holders: dict[str, dict[int, Row]] = defaultdict(dict)
    for slot in held:
        holders[slot["node_id"]][slot["slot"]] = slot
    shown = []
    for row in rows:
        of_node = holders.get(row["node_id"], {})
        numbers = sorted({*range(row["num_slots"]), *of_node})
        slots = [_slot(number, of_node.get(number)) for number in numbers]
        shown.append(
            _of(
                models.Node,
                row,
                num_free=sum(not slot.is_held for slot in slots),
                slots=slots,
            )
        )
    return shown


def _slot(number: int, held: Row | None) -> models.Slot:
    row: Row = held or dict.fromkeys(("job_id", "name", "project", "attempt", "granted_at"))
    return _of(models.Slot, row, slot=number, is_held=held is not None)


def is_maximized(row: Row) -> bool:
    """Whether the study maximizes its metric."""
    return bool(row["goal"] == "maximize")


_TRIAL_KINDS = ("proposed", "completed", "failed", "stopped", "paused")


def study_fields(row: Row, base_url: str) -> dict[str, Any]:
    """The fields that summary and study have in common."""
    return _fields(
        models.StudySummary,
        row,
        study_url=f"{base_url}/studies/{row['study_id']}",
        best_number=row["shown_best_number"],
        best_value=row["shown_best_value"],
    )


def study_summary(row: Row, base_url: str) -> models.StudySummary:
    return models.StudySummary(**study_fields(row, base_url))


def study(row: Row, trials: Sequence[Row], base_url: str) -> models.Study:
    """`trials` in the order of their rank, those without a value last."""
    return models.Study(
        **study_fields(row, base_url),
        request_id=row["request_id"],
        spec=redacted(row["spec"]),
        refusal=refusal(row),
        pareto=row["pareto"] or None,
        trials=ranked_trials(trials),
    )


def ranked_trials(trials: Sequence[Row], num_before: int = 0) -> list[models.Trial]:
    """`trials` in the order of their rank, after `num_before` better ones."""
    return [
        _trial(trial, None if trial["ranked_value"] is None else rank)
        for rank, trial in enumerate(trials, start=num_before + 1)
    ]


def judged_trial(row: Row) -> models.JudgedTrial:
    rungs = [_of(models.Rung, rung) for rung in row["judged"]]
    return models.JudgedTrial(**_trial_facts(row), rungs=rungs)


def submitted_study(submission: Submission, base_url: str) -> models.Study:
    """A study that the read model does not know yet, though its request was sent."""
    unknown = (
        "num_trials",
        "shown_best_number",
        "shown_best_value",
        "failure",
        "ended_by",
        "state_reason",
        "limits",
        "pareto",
        "max_parallel_trials",
        "started_at",
        "finished_at",
    )
    spec = submission.spec
    assert isinstance(spec, StudySpec)
    metric = spec.job.metric
    row = {
        **dict.fromkeys(unknown),
        **dict.fromkeys((f"num_{kind}" for kind in _TRIAL_KINDS), 0),
        "study_id": submission.subject_id,
        "request_id": submission.request_id,
        "name": spec.name,
        "spec": spec.model_dump(mode="json"),
        "sampler": spec.sampler.value,
        "metric": metric.name if metric else None,
        "goal": metric.goal.value if metric else None,
        "state": "submitted",
        "is_cancelling": False,
    }
    return study(row, (), base_url)


def _trial(row: Row, rank: int | None) -> models.Trial:
    return models.Trial(**_trial_facts(row), rank=rank, is_best=rank == 1)


def _trial_facts(row: Row) -> dict[str, Any]:
    facts = {name: row[name] for name in models.TrialFacts.model_fields if name != "values"}
    facts["hyperparameters"] = redacted(facts["hyperparameters"])
    of_one = None if row["value"] is None else [row["value"]]
    return {**facts, "values": row["objectives"] or of_one}


def parked_summary(row: Row) -> models.ParkedSummary:
    return _of(models.ParkedSummary, row)


def parked_record(row: Row) -> models.ParkedRecord:
    headers = zip(row["header_names"], row["header_values"], strict=True)
    return models.ParkedRecord(
        **{name: row[name] for name in models.ParkedSummary.model_fields},
        is_omitted=row["is_omitted"],
        key=shown_bytes(row["key"]),
        value=shown_bytes(row["value"]),
        headers=[
            models.Header(
                name=name, value=_shown(HIDDEN.encode() if looks_secret(name) else value or b"")
            )
            for name, value in headers
        ],
    )


def shown_bytes(raw: bytes | None) -> models.ShownBytes | None:
    return None if raw is None else _shown(raw)


def _shown(raw: bytes) -> models.ShownBytes:
    shown = bytes_shown.show(bytes_shown.without_secrets(raw))
    assert shown is not None
    return models.ShownBytes(
        size_bytes=shown.size_bytes, base64=shown.base64, text=shown.text, is_cut=shown.is_cut
    )


def _of(model: type[M], row: Row, **others: Any) -> M:
    return model(**_fields(model, row, **others))


def _fields(model: type[Any], row: Row, **others: Any) -> dict[str, Any]:
    """Of a model: these, and the rest from the columns of their names."""
    return {name: row[name] for name in model.model_fields if name not in others} | others
