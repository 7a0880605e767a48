"""Records of the topic `windows`: the state of one source, which is what Faust's table holds.

The topic is the table's changelog and the process's output at once, so that both always agree.
"""

import msgspec

from drivetrain_schemas.envelope import MAX_EVENT_BYTES, InvalidEvent, InvalidReason
from services.metrics.core.windows import Source
from services.runtime.bus import Record


class SourceState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`rank` of the run, or `pod_id`. `version` counts changes, from 1.

    `partition`: of its records. `touched_at`: seconds since 1970 of the newest one.
    """

    tenant_id: str
    job_id: str
    run_id: str
    attempt: int
    rank: int | None = None
    pod_id: str | None = None
    partition: int
    version: int = 0
    touched_at: float = 0.0
    source: Source = Source()

    def with_source(self, source: Source, at: float) -> "SourceState":
        """The next version, `at` the time in seconds of what changed it."""
        return msgspec.structs.replace(
            self, source=source, version=self.version + 1, touched_at=max(at, self.touched_at)
        )

    @property
    def number(self) -> int:
        """The rank, or the index of the pod in its run."""
        return int((self.pod_id or "_0").rpartition("_")[2]) if self.rank is None else self.rank

    @property
    def key(self) -> bytes:
        return source_key(self.run_id, self.rank, self.pod_id)


class _Age(msgspec.Struct, frozen=True):
    partition: int
    touched_at: float = 0.0


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(SourceState)
_age_decoder = msgspec.json.Decoder(_Age)


def source_key(run_id: str, rank: int | None, pod_id: str | None) -> bytes:
    return f"{run_id}/{pod_id if rank is None else rank}".encode()


def write(state: SourceState) -> bytes:
    return _encoder.encode(state)


def read(value: bytes) -> SourceState:
    """Raises msgspec.MsgspecError."""
    return _decoder.decode(value)


def read_age(value: bytes) -> tuple[int, float]:
    """The partition, and when it was touched, without reading the rest."""
    age = _age_decoder.decode(value)
    return age.partition, age.touched_at


def read_record(record: Record) -> SourceState | None:
    """The state in a record; None for one that deletes a key. Raises InvalidEvent."""
    if record.value is None:
        return None
    if len(record.value) > MAX_EVENT_BYTES:
        raise InvalidEvent(InvalidReason.TOO_LARGE, f"{len(record.value)} bytes")
    try:
        return read(record.value)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InvalidEvent(InvalidReason.INVALID_PAYLOAD, str(error)) from error
