"""From a record of `metrics` or `reports` to the state of its source. Knows nothing of Faust."""

from collections.abc import Callable
from dataclasses import dataclass

from drivetrain_schemas.envelope import InvalidEvent, header
from drivetrain_schemas.reports import PodHeartbeat
from services.metrics.core.ranks import is_pod_of, num_ranks
from services.metrics.core.windows import add_batch, add_heartbeat
from services.metrics.messages import SampleBatch, read_samples
from services.metrics.windows.records import SourceState, source_key
from services.runtime.bus import Record
from services.runtime.run_tokens import RunTokens

HEARTBEAT = PodHeartbeat.kind.type


@dataclass(frozen=True, slots=True)
class Observation:
    """What a record says of one source; `fold` gives the source's next state."""

    key: bytes
    fold: Callable[[SourceState | None], SourceState]


def observe(tokens: RunTokens, record: Record) -> Observation | None:
    """None for a record that is of no interest here, cannot be read, is not signed by its run,
    or names a rank or a pod that no run has.

    Whoever stores these records parks and counts them.
    """
    try:
        if header(record.headers, "ce_type") == HEARTBEAT:
            event = tokens.read(record)
            heartbeat = None if event is None else event.payload
            return _of_heartbeat(heartbeat, record) if isinstance(heartbeat, PodHeartbeat) else None
        if header(record.headers, "ce_type") != "samples.recorded":
            return None
        batch = read_samples(record)
    except InvalidEvent:
        return None
    if batch.resent_by is not None:
        return None  # of a run that has ended, and so of no window of now
    run_id = batch.key.run_id
    if batch.key.rank >= num_ranks(None):
        return None
    if not tokens.is_of_run(run_id, batch.fence, batch.job_id, batch.attempt, batch.run_token):
        return None
    return _of_batch(batch, record)


def _of_batch(batch: SampleBatch, record: Record) -> Observation:
    at, key = record.timestamp_ms / 1000, batch.key

    def fold(state: SourceState | None) -> SourceState:
        if state is None:
            state = SourceState(
                tenant_id=batch.tenant_id,
                job_id=batch.job_id,
                run_id=key.run_id,
                attempt=batch.attempt,
                rank=key.rank,
                partition=record.partition,
            )
        source = add_batch(state.source, at, key.rank, key.session, key.batch, batch.columns)
        return state if source is state.source else state.with_source(source, at)

    return Observation(source_key(key.run_id, key.rank, None), fold)


def _of_heartbeat(heartbeat: PodHeartbeat, record: Record) -> Observation | None:
    if heartbeat.step is None or not is_pod_of(heartbeat.run_id, heartbeat.pod_id):
        return None
    at, step = record.timestamp_ms / 1000, heartbeat.step

    def fold(state: SourceState | None) -> SourceState:
        if state is None:
            state = SourceState(
                tenant_id=heartbeat.tenant_id,
                job_id=heartbeat.job_id,
                run_id=heartbeat.run_id,
                attempt=heartbeat.attempt,
                pod_id=heartbeat.pod_id,
                partition=record.partition,
            )
        source = add_heartbeat(state.source, at, step)
        return state if source is state.source else state.with_source(source, at)

    return Observation(source_key(heartbeat.run_id, None, heartbeat.pod_id), fold)
