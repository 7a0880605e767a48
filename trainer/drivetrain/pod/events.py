"""The records that a pod writes to the topics `metrics`, `logs` and `reports`.

The hot path (samples) goes from the rank's JSON to the event's without its columns being parsed.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from drivetrain.messages import (
    CheckpointSaved,
    Described,
    MediaSaved,
    Resumed,
    Samples,
    SaveFailed,
    Warned,
)
from drivetrain.pod.logs import Chunk
from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoints import (
    CheckpointWriteFailed,
    CheckpointWritten,
    RunResumed,
    SaveFailure,
)
from drivetrain_schemas.descriptions import PodDescribed, Surroundings
from drivetrain_schemas.envelope import Event, encode, encode_headers
from drivetrain_schemas.media import MediaLogged
from drivetrain_schemas.metrics import Column, LogsWritten, SamplesRecorded
from drivetrain_schemas.pods import PodSpec
from drivetrain_schemas.reports import MAX_WARNING_CHARACTERS, PodHeartbeat, PodWarned

_MAX_DETAIL_CHARACTERS = 512


@dataclass(frozen=True, slots=True)
class OutRecord:
    topic: str
    key: bytes
    value: bytes
    headers: list[tuple[str, bytes]]


class _LaterRun(msgspec.Struct):
    attempt: int
    fence: int


class _SamplesOnWire(msgspec.Struct, omit_defaults=True):
    tenant_id: str
    job_id: str
    run_id: str
    attempt: int
    fence: int
    rank: int
    session: str
    batch: int
    sent_at: str
    columns: msgspec.Raw
    resent_by: _LaterRun | None = None


class Events:
    """Makes the records of one pod."""

    def __init__(self, spec: PodSpec) -> None:
        self._prefix = spec.kafka.topic_prefix
        self._source = f"/pods/{spec.pod_id}"
        self._tenant_id = spec.tenant_id
        self._job_id = spec.job_id
        self._pod_id = spec.pod_id
        self._run_token = spec.run_token
        # Of what is handled as an event of its own: heartbeats, samples and lines are too many.
        self._traceparent = spec.trace.traceparent if spec.trace is not None else None
        self._run: dict[str, Any] = {
            "tenant_id": spec.tenant_id,
            "job_id": spec.job_id,
            "run_id": spec.run_id,
            "attempt": spec.attempt,
            "fence": spec.fence,
        }
        self._own_run = _LaterRun(spec.attempt, spec.fence)
        self._session = secrets.token_hex(8)
        self._num_logs: dict[int, int] = {}
        self._system_session = secrets.token_hex(8)  # so that no batch of a rank has its key
        self._num_system = 0
        self._num_failed_saves = 0
        self._num_warnings = 0

    def samples(self, message: Samples) -> OutRecord:
        wire = _SamplesOnWire(
            tenant_id=self._tenant_id,
            job_id=self._job_id,
            run_id=message.run_id,
            attempt=message.attempt,
            fence=message.fence,
            rank=message.rank,
            session=message.session,
            batch=message.batch,
            sent_at=datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            columns=message.columns,
            # Of an earlier run, out of the checkpoint; this pod has only the token of its own run.
            resent_by=None if message.run_id == self._run["run_id"] else self._own_run,
        )
        headers = encode_headers(
            self._event(
                # Only its kind is read; the columns stay as received.
                SamplesRecorded.model_construct(run_id=message.run_id),  # type: ignore[call-arg]
                f"{message.run_id}/{message.rank}/{message.session}/{message.batch}",
            )
        )
        topic = self._prefix + SamplesRecorded.kind.topic.name
        return OutRecord(topic, message.run_id.encode(), msgspec.json.encode(wire), headers)

    def logs(self, chunk: Chunk) -> OutRecord:
        number = self._num_logs.get(chunk.rank, 0)
        self._num_logs[chunk.rank] = number + 1
        payload = LogsWritten(
            **self._run,
            rank=chunk.rank,
            session=self._session,
            batch=number,
            sent_at=datetime.now(UTC),
            first_line=chunk.first_line,
            lines=tuple(chunk.lines),
            num_dropped_bytes=chunk.num_dropped_bytes,
        )
        return self._record(payload, f"{self._pod_id}/{chunk.rank}/{self._session}/{number}")

    def system(self, rank: int, step: int, values: Mapping[str, float]) -> OutRecord:
        """One sample of each of the series of `system_series`."""
        number = self._num_system
        self._num_system += 1
        payload = SamplesRecorded(
            **self._run,
            rank=rank,
            session=self._system_session,
            batch=number,
            sent_at=datetime.now(UTC),
            columns={
                name: Column(steps=(step,), values=(round(value, 3),))
                for name, value in values.items()
            },
        )
        return self._record(payload, f"{self._pod_id}/system/{self._system_session}/{number}")

    def checkpoint(self, message: CheckpointSaved) -> OutRecord:
        payload = CheckpointWritten(**self._run, **_fields(message))
        return self._record(payload, message.manifest_key, self._traceparent)

    def save_failed(self, message: SaveFailed) -> OutRecord:
        known = message.reason in set(SaveFailure)
        payload = CheckpointWriteFailed(
            **self._run,
            step=message.step,
            reason=SaveFailure(message.reason) if known else SaveFailure.OTHER,
            detail=message.detail[:_MAX_DETAIL_CHARACTERS],
        )
        self._num_failed_saves += 1
        number = self._num_failed_saves
        return self._record(payload, f"{self._pod_id}/save_failed/{self._session}/{number}")

    def resumed(self, message: Resumed) -> OutRecord:
        return self._record(
            RunResumed(**self._run, **_fields(message)), f"{self._pod_id}/resumed/{self._session}"
        )

    def warned(self, message: Warned) -> OutRecord:
        payload = PodWarned(
            **self._run,
            pod_id=self._pod_id,
            warning=message.warning,
            detail=message.detail[:MAX_WARNING_CHARACTERS],
        )
        self._num_warnings += 1
        return self._record(payload, f"{self._pod_id}/warned/{self._session}/{self._num_warnings}")

    def media(self, message: MediaSaved) -> OutRecord:
        payload = MediaLogged(**self._run, logged_at=datetime.now(UTC), **_fields(message))
        return self._record(payload, f"{self._pod_id}/media/{self._session}/{message.number}")

    def described(self, message: Described) -> OutRecord:
        payload = PodDescribed(
            **self._run,
            pod_id=self._pod_id,
            number=message.number,
            surroundings=Surroundings.model_validate_json(
                bytes(message.surroundings), extra="ignore"
            ),
        )
        number = message.number
        return self._record(payload, f"{self._pod_id}/described/{self._session}/{number}")

    def heartbeat(self, number: int, **fields: Any) -> OutRecord:
        payload = PodHeartbeat(
            **self._run, pod_id=self._pod_id, sent_at=datetime.now(UTC), **fields
        )
        return self._record(payload, f"{self._pod_id}/{self._session}/{number}")

    def _record(self, payload: Payload, event_id: str, traceparent: str | None = None) -> OutRecord:
        headers, key, value = encode(self._event(payload, event_id, traceparent))
        return OutRecord(self._prefix + payload.kind.topic.name, key, value, headers)

    def _event(
        self, payload: Payload, event_id: str, traceparent: str | None = None
    ) -> Event[Payload]:
        return Event(
            event_id=event_id,
            source=self._source,
            occurred_at=datetime.now(UTC),
            tenant_id=self._tenant_id,
            payload=payload,
            correlation_id=self._job_id,
            run_token=self._run_token,
            traceparent=traceparent,
        )


def _fields(message: CheckpointSaved | Resumed | MediaSaved) -> dict[str, Any]:
    return {name: getattr(message, name) for name in message.__struct_fields__}
