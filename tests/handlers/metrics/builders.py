"""Batches and heartbeats with valid defaults; a test names only what it is about."""

from datetime import UTC, datetime
from typing import Any

from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.metrics import Column, LogsWritten, SamplesRecorded
from drivetrain_schemas.reports import PodHeartbeat

JOB = "job_" + "m" * 26
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def make_samples(
    columns: dict[str, dict[int, Any]], *, attempt: int = 1, **fields: Any
) -> SamplesRecorded:
    """`columns`: of each series, values by step."""
    return SamplesRecorded(
        **_batch(attempt, fields),
        columns={
            name: Column(steps=tuple(samples), values=tuple(samples.values()))
            for name, samples in columns.items()
        },
    )


def make_logs(lines: list[str], *, attempt: int = 1, **fields: Any) -> LogsWritten:
    first_line = fields.pop("first_line", 0)
    num_dropped_bytes = fields.pop("num_dropped_bytes", 0)
    return LogsWritten(
        **_batch(attempt, fields),
        lines=tuple(lines),
        first_line=first_line,
        num_dropped_bytes=num_dropped_bytes,
    )


def make_heartbeat(*, attempt: int = 1, job_id: str = JOB, **fields: Any) -> PodHeartbeat:
    values: dict[str, Any] = {
        "tenant_id": "default",
        "job_id": job_id,
        "run_id": run_id_for(job_id, attempt),
        "attempt": attempt,
        "fence": attempt,
        "pod_id": f"pod_{job_id.removeprefix('job_')}_{attempt}_0",
        "phase": "training",
        "step": 1,
        "sent_at": NOW,
    }
    return PodHeartbeat(**(values | fields))


def _batch(attempt: int, fields: dict[str, Any]) -> dict[str, Any]:
    job_id = fields.get("job_id", JOB)
    values: dict[str, Any] = {
        "tenant_id": "default",
        "job_id": job_id,
        "run_id": run_id_for(job_id, attempt),
        "attempt": attempt,
        "fence": attempt,
        "rank": 0,
        "session": "s1",
        "batch": 0,
        "sent_at": NOW,
    }
    return values | fields
