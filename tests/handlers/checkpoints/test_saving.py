"""Runs that continue without new checkpoints are reported, with the cause, until they recover."""

import pytest

from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoints import (
    CheckpointCommitted,
    CheckpointingFailed,
    CheckpointingRecovered,
    CheckpointWriteFailed,
    SaveFailure,
)
from drivetrain_schemas.ids import pod_id_for, run_id_for
from drivetrain_schemas.reports import PodHeartbeat
from services.checkpoints import actions
from services.checkpoints.worker import TRIES_BEFORE_REPORT
from tests.handlers.checkpoints.builders import (
    AT,
    JOB,
    make_failed,
    make_granted,
    make_queued,
    make_written,
    write_checkpoint,
)
from tests.handlers.checkpoints.conftest import Catalogue


def make_write_failed(
    step: int, reason: SaveFailure = SaveFailure.STORE_FULL, *, fence: int = 1
) -> CheckpointWriteFailed:
    return CheckpointWriteFailed(
        tenant_id="default",
        job_id=JOB,
        run_id=run_id_for(JOB, fence),
        attempt=fence,
        fence=fence,
        step=step,
        reason=reason,
        detail="No space left on device",
    )


def make_heartbeat(step: int, *, fence: int = 1) -> PodHeartbeat:
    return PodHeartbeat(
        tenant_id="default",
        job_id=JOB,
        run_id=run_id_for(JOB, 1),
        attempt=1,
        fence=fence,
        pod_id=pod_id_for(JOB, 1, 0),
        phase="training",
        step=step,
        sent_at=AT,
    )


def types(payloads: list[Payload]) -> list[str]:
    return [one.kind.type for one in payloads]


async def save(catalogue: Catalogue, step: int, fence: int = 1) -> list[Payload]:
    await write_checkpoint(catalogue.object_store, step, fence=fence)
    return await catalogue.deliver(make_written(step, fence=fence))


async def test_a_run_that_cannot_save_is_reported_once_with_its_cause_and_when_it_recovers(
    running: Catalogue,
) -> None:
    await save(running, 50)
    (failing,) = await running.deliver(make_write_failed(60))
    assert isinstance(failing, CheckpointingFailed)
    assert (failing.last_step, failing.failed_step) == (50, 60)
    assert (failing.reason, failing.detail) == (SaveFailure.STORE_FULL, "No space left on device")
    assert await running.deliver(make_write_failed(70), make_write_failed(80)) == []
    committed, recovered = await save(running, 90)
    assert isinstance(committed, CheckpointCommitted)
    assert isinstance(recovered, CheckpointingRecovered)
    assert (recovered.step, recovered.run_id) == (90, run_id_for(JOB, 1))
    assert types(await running.deliver(make_write_failed(100))) == ["checkpointing.failed"]


async def test_another_cause_is_reported_too(running: Catalogue) -> None:
    await running.deliver(make_write_failed(60))
    (failing,) = await running.deliver(make_write_failed(70, SaveFailure.STORE_READ_ONLY))
    assert isinstance(failing, CheckpointingFailed)
    assert failing.last_step is None


async def test_a_checkpoint_older_than_the_failed_save_does_not_clear_it(
    running: Catalogue,
) -> None:
    await running.deliver(make_write_failed(60))
    assert types(await save(running, 50)) == ["checkpoint.committed"]
    assert types(await save(running, 70)) == ["checkpoint.committed", "checkpointing.recovered"]


async def test_only_the_newest_live_run_is_reported(running: Catalogue) -> None:
    await running.deliver(make_failed(), make_granted(fence=2))
    assert await running.deliver(make_write_failed(60)) == []
    assert types(await running.deliver(make_write_failed(60, fence=2))) == ["checkpointing.failed"]
    await running.deliver(make_failed(fence=2))
    assert await running.deliver(make_write_failed(70, fence=2)) == []


async def test_a_live_run_without_checkpoints_for_long_is_reported_as_overdue(
    catalogue: Catalogue,
) -> None:
    await catalogue.deliver(make_queued(checkpoint={"every_minutes": 1}), make_granted())
    assert await catalogue.wait() == []
    await grow_older(catalogue)
    (failing,) = await catalogue.wait()
    assert isinstance(failing, CheckpointingFailed)
    assert failing.reason is SaveFailure.OVERDUE
    assert "asks for one every 1" in failing.detail
    assert await catalogue.wait() == []
    assert types(await save(catalogue, 10)) == ["checkpoint.committed", "checkpointing.recovered"]
    assert await catalogue.wait() == []


async def test_a_save_that_hangs_is_noticed_by_the_steps_of_heartbeats(
    catalogue: Catalogue,
) -> None:
    await catalogue.deliver(make_queued(checkpoint={"every_steps": 50}), make_granted())
    await catalogue.deliver(make_heartbeat(1), make_heartbeat(60), make_heartbeat(80))
    await save(catalogue, 50)
    await grow_older(catalogue)
    await catalogue.deliver(make_heartbeat(149))
    assert await catalogue.wait() == []
    await catalogue.deliver(make_heartbeat(500, fence=7), make_heartbeat(199))
    (failing,) = await catalogue.wait()
    assert isinstance(failing, CheckpointingFailed)
    assert (failing.reason, failing.last_step) == (SaveFailure.OVERDUE, 50)
    assert "and 149 steps; the job asks for one every 50 steps" in failing.detail
    assert await catalogue.wait() == []
    assert types(await save(catalogue, 150)) == ["checkpoint.committed", "checkpointing.recovered"]


async def test_steps_before_the_resume_do_not_count_as_unsaved(catalogue: Catalogue) -> None:
    await catalogue.deliver(make_queued(checkpoint={"every_steps": 50}), make_granted())
    await catalogue.deliver(make_heartbeat(1000), make_heartbeat(1090))
    await grow_older(catalogue)
    assert await catalogue.wait() == []


async def test_a_job_that_asks_for_none_by_time_is_never_overdue(running: Catalogue) -> None:
    await grow_older(running)
    assert await running.wait() == []


async def grow_older(catalogue: Catalogue) -> None:
    async with catalogue.database.connection() as connection:
        await connection.execute(
            """update runs set noted_at = noted_at - interval '1 hour',
                saved_at = saved_at - interval '1 hour'"""
        )


async def test_a_store_that_this_service_cannot_read_is_reported_as_the_cause(
    running: Catalogue,
) -> None:
    await write_checkpoint(running.object_store, 40)
    running.object_store.move_away()
    emitted = await running.deliver(make_written(40))
    for _ in range(TRIES_BEFORE_REPORT + 2):
        emitted += await running.wait()
    (failing,) = emitted
    assert isinstance(failing, CheckpointingFailed)
    assert failing.reason is SaveFailure.STORE_UNAVAILABLE
    assert "checkpoints service" in failing.detail
    running.object_store.move_back()
    assert types(await running.wait()) == ["checkpoint.committed", "checkpointing.recovered"]


@pytest.mark.parametrize("small_bytes", [0, actions.SMALL_BYTES])
async def test_a_large_checkpoint_clears_it_as_well(
    running: Catalogue, monkeypatch: pytest.MonkeyPatch, small_bytes: int
) -> None:
    monkeypatch.setattr(actions, "SMALL_BYTES", small_bytes)
    await running.deliver(make_write_failed(60))
    assert types(await save(running, 70)) == ["checkpoint.committed", "checkpointing.recovered"]
