"""Writes of the read model about all but jobs: nodes, checkpoints, money, studies, what was parked.

One function per statement, as in `store`.
"""

from collections.abc import Sequence
from datetime import datetime

import asyncpg

from drivetrain_schemas.base import Payload, canonical_json
from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.checkpoints import (
    CheckpointCommitted,
    CheckpointDeleted,
    CheckpointPinned,
    CheckpointRejected,
    CheckpointRestored,
)
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.jobs import FieldError
from drivetrain_schemas.metrics import AlertCleared, AlertRaised
from drivetrain_schemas.nodes import NodeRegistered, NodeRemoved
from drivetrain_schemas.studies import (
    StudyCompleted,
    StudyStarted,
    StudySubmit,
    TrialCompleted,
    TrialFailed,
    TrialProposed,
)
from services.gateway.core.storable import storable_text
from services.runtime.bus import Record

Connection = asyncpg.Connection
AnyCheckpoint = (
    CheckpointCommitted
    | CheckpointRejected
    | CheckpointRestored
    | CheckpointDeleted
    | CheckpointPinned
)


async def upsert_node(connection: Connection, node: NodeRegistered, seq: int, at: datetime) -> None:
    await connection.execute(
        """
        insert into nodes (node_id, pool, device_type, num_slots, state_seq, registered_at)
        values ($1, $2, $3, $4, $5, $6)
        on conflict (node_id) do update set
            pool = excluded.pool, device_type = excluded.device_type,
            num_slots = excluded.num_slots, state_seq = excluded.state_seq,
            registered_at = coalesce(nodes.registered_at, excluded.registered_at),
            removed_at = null, removed_reason = null
        where nodes.state_seq < excluded.state_seq
        """,
        node.node_id,
        node.pool,
        node.device_type,
        node.num_slots,
        seq,
        at,
    )


async def set_node_removed(
    connection: Connection, node: NodeRemoved, seq: int, at: datetime
) -> None:
    await connection.execute(
        """
        insert into nodes (node_id, state_seq, removed_at, removed_reason) values ($1, $2, $3, $4)
        on conflict (node_id) do update set state_seq = excluded.state_seq,
            removed_at = excluded.removed_at, removed_reason = excluded.removed_reason
        where nodes.state_seq < excluded.state_seq
        """,
        node.node_id,
        seq,
        at,
        node.reason,
    )


async def stub_checkpoint(connection: Connection, checkpoint: AnyCheckpoint) -> None:
    """What every event about a checkpoint says of it."""
    await connection.execute(
        """
        insert into checkpoints (checkpoint_id, tenant_id, job_id, run_id, attempt, fence, step)
        values ($1, $2, $3, $4, $5, $6, $7)
        on conflict do nothing
        """,
        checkpoint.checkpoint_id,
        checkpoint.tenant_id,
        checkpoint.job_id,
        checkpoint.run_id,
        checkpoint.attempt,
        checkpoint.fence,
        checkpoint.step,
    )


async def set_checkpoint_committed(
    connection: Connection, committed: CheckpointCommitted, seq: int, at: datetime
) -> None:
    await connection.execute(
        """
        update checkpoints set manifest_key = $2, size_bytes = $3, num_shards = $4, epoch = $5,
            metrics = $6, committed_at = $7, best_seq = $8
        where checkpoint_id = $1
        """,
        committed.checkpoint_id,
        committed.manifest_key,
        committed.size_bytes,
        committed.num_shards,
        committed.epoch,
        committed.metrics,
        at,
        seq if committed.is_best else None,
    )


async def set_checkpoint_rejected(connection: Connection, rejected: CheckpointRejected) -> None:
    await connection.execute(
        """
        update checkpoints set manifest_key = $2, rejected_reason = $3, rejected_detail = $4
        where checkpoint_id = $1
        """,
        rejected.checkpoint_id,
        rejected.manifest_key,
        rejected.reason.value,
        rejected.detail,
    )


async def set_checkpoint_restored(
    connection: Connection, restored: CheckpointRestored, at: datetime
) -> None:
    await connection.execute(
        """
        update checkpoints set restored_at = greatest(restored_at, $2),
            restored_by_attempt = greatest(restored_by_attempt, $3)
        where checkpoint_id = $1
        """,
        restored.checkpoint_id,
        at,
        restored.resumed_by_attempt,
    )


async def set_checkpoint_deleted(
    connection: Connection, deleted: CheckpointDeleted, at: datetime
) -> None:
    await connection.execute(
        "update checkpoints set deleted_at = $2, deleted_reason = $3 where checkpoint_id = $1",
        deleted.checkpoint_id,
        at,
        deleted.reason,
    )


async def set_checkpoint_pinned(connection: Connection, checkpoint_id: str) -> None:
    await connection.execute(
        "update checkpoints set is_pinned = true where checkpoint_id = $1", checkpoint_id
    )


async def insert_charge(connection: Connection, charge: ChargeRecorded) -> None:
    await connection.execute(
        """
        insert into charges (charge_id, tenant_id, job_id, run_id, num_slots, starts_at, ends_at,
            amount_micro_usd)
        values ($1, $2, $3, $4, $5, $6, $7, $8)
        on conflict do nothing
        """,
        charge.charge_id,
        charge.tenant_id,
        charge.job_id,
        charge.run_id,
        charge.num_slots,
        charge.starts_at,
        charge.ends_at,
        charge.amount_micro_usd,
    )


async def insert_rejection(
    connection: Connection,
    event: Event[Payload],
    subject_id: str,
    command_event_id: str,
    reason: str,
    errors: Sequence[FieldError] = (),
) -> None:
    await connection.execute(
        """
        insert into rejections (command_event_id, subject_id, reason, detail, errors, occurred_at,
            seq)
        values ($1, $2, $3, $4, $5, $6, $7)
        on conflict do nothing
        """,
        command_event_id,
        subject_id,
        reason,
        str(getattr(event.payload, "detail", "")),
        [error.model_dump(mode="json") for error in errors],
        event.occurred_at,
        event.seq or 0,
    )


async def upsert_alert(
    connection: Connection, alert: AlertRaised | AlertCleared, seq: int, at: datetime
) -> None:
    is_raised = isinstance(alert, AlertRaised)
    await connection.execute(
        """
        insert into alerts (run_id, alert, job_id, attempt, state_seq, series, step, detail,
            raised_at, cleared_at)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
        on conflict (run_id, alert) do update set
            state_seq = excluded.state_seq, detail = excluded.detail,
            series = coalesce(excluded.series, alerts.series),
            step = coalesce(excluded.step, alerts.step),
            raised_at = coalesce(excluded.raised_at, alerts.raised_at),
            cleared_at = excluded.cleared_at
        where alerts.state_seq < excluded.state_seq
        """,
        alert.run_id,
        alert.alert,
        alert.job_id,
        alert.attempt,
        seq,
        alert.series if isinstance(alert, AlertRaised) else None,
        alert.step if isinstance(alert, AlertRaised) else None,
        alert.detail,
        at if is_raised else None,
        None if is_raised else at,
    )


async def stub_study(
    connection: Connection, study_id: str, tenant_id: str, submitted_at: datetime | None = None
) -> None:
    await connection.execute(
        """
        insert into studies (study_id, tenant_id, submitted_at) values ($1, $2, $3)
        on conflict do nothing
        """,
        study_id,
        tenant_id,
        submitted_at,
    )


async def stub_submitted_study(
    connection: Connection, event: Event[StudySubmit], study_id: str
) -> None:
    await connection.execute(
        """
        insert into studies (study_id, tenant_id, request_id, name, spec, submitted_at)
        values ($1, $2, $3, $4, $5, $6)
        on conflict (study_id) do update set
            submitted_at = least(studies.submitted_at, excluded.submitted_at),
            request_id = coalesce(studies.request_id, excluded.request_id),
            name = coalesce(studies.name, excluded.name),
            spec = coalesce(studies.spec, excluded.spec)
        """,
        study_id,
        event.tenant_id,
        event.payload.request_id,
        event.payload.spec.name,
        event.payload.spec.model_dump(mode="json"),
        event.occurred_at,
    )


async def upsert_study_started(connection: Connection, event: Event[StudyStarted]) -> None:
    started = event.payload
    await connection.execute(
        """
        insert into studies (study_id, tenant_id, request_id, name, spec, num_trials, state,
            started_at, accepted_spec)
        values ($1, $2, $3, $4, $5, $6, 'running', $7, $8)
        on conflict (study_id) do update set
            tenant_id = excluded.tenant_id, request_id = excluded.request_id, name = excluded.name,
            spec = excluded.spec, num_trials = excluded.num_trials,
            started_at = excluded.started_at, accepted_spec = excluded.accepted_spec,
            state = case when studies.finished_at is null then 'running' else studies.state end
        """,
        started.study_id,
        event.tenant_id,
        started.request_id,
        started.spec.name,
        started.spec.model_dump(mode="json"),
        started.num_trials,
        started.started_at,
        canonical_json(started.spec),
    )


async def set_study_completed(connection: Connection, completed: StudyCompleted) -> None:
    await connection.execute(
        """
        update studies set state = 'completed', finished_at = $2, best_number = $3, best_value = $4
        where study_id = $1
        """,
        completed.study_id,
        completed.finished_at,
        completed.best_number,
        completed.best_value,
    )


async def upsert_trial(
    connection: Connection, trial: TrialProposed | TrialCompleted | TrialFailed, seq: int
) -> None:
    if isinstance(trial, TrialCompleted):
        state, value, detail = "completed", trial.value, None
    elif isinstance(trial, TrialFailed):
        state, value, detail = "failed", None, trial.detail
    else:
        state, value, detail = "proposed", None, None
    await connection.execute(
        """
        insert into trials (study_id, number, job_id, hyperparameters, state, state_seq, value,
            detail)
        values ($1, $2, $3, $4, $5, $6, $7, $8)
        on conflict (study_id, number) do update set state = excluded.state,
            state_seq = excluded.state_seq, value = excluded.value, detail = excluded.detail
        where trials.state_seq < excluded.state_seq
        """,
        trial.study_id,
        trial.number,
        trial.job_id,
        trial.hyperparameters,
        state,
        seq,
        value,
        detail,
    )


async def insert_parked(
    connection: Connection, parked_id: str, service: str, record: Record, facts: dict[str, str]
) -> None:
    """`facts` are the record's x-parked-* headers; `record` still carries them."""
    own = [(name, value) for name, value in record.headers if not name.startswith("x-parked-")]
    await connection.execute(
        """
        insert into parked (parked_id, service, topic, partition, "offset", reason, detail,
            parked_at, key, value, header_names, header_values, omitted_bytes)
        values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
        on conflict do nothing
        """,
        parked_id,
        service,
        facts.get("topic", ""),
        _whole(facts.get("partition")),
        _whole(facts.get("offset")),
        facts.get("reason", "unknown"),
        facts.get("detail", ""),
        datetime.fromisoformat(facts["at"]),
        record.key,
        record.value,
        [storable_text(name) for name, _ in own],
        [value for _, value in own],
        _whole(facts.get("omitted")),
    )


def _whole(text: str | None) -> int | None:
    if text is None or not (text.isascii() and text.isdigit()) or len(text) > 18:
        return None
    return int(text)
