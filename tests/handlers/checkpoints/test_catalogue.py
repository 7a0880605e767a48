"""From what runs write and report to what the catalogue says."""

from typing import Any

import pytest

from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoints import (
    CheckpointCommitted,
    CheckpointingWentBack,
    CheckpointPin,
    CheckpointPinned,
    CheckpointPinRejected,
    CheckpointRejected,
    CheckpointRestored,
    RejectedReason,
)
from drivetrain_schemas.ids import run_id_for
from tests.handlers.checkpoints.builders import (
    JOB,
    PREFIX,
    id_of,
    key_of,
    make_failed,
    make_granted,
    make_queued,
    make_resumed,
    make_written,
    name_of,
    shard_key,
    write_checkpoint,
)
from tests.handlers.checkpoints.conftest import Catalogue


def reported(payloads: list[Payload]) -> list[tuple[str, int]]:
    """Type and step of what was emitted."""
    return [(one.kind.type, one.step) for one in payloads]  # type: ignore[attr-defined]


async def test_a_reported_checkpoint_is_verified_and_committed(running: Catalogue) -> None:
    await write_checkpoint(running.object_store, 50, changes={"metrics": {"loss": 0.5}, "epoch": 2})
    (committed,) = await running.deliver(make_written(50))
    assert isinstance(committed, CheckpointCommitted)
    assert committed.checkpoint_id == id_of(50)
    assert (committed.step, committed.fence, committed.epoch) == (50, 1, 2)
    assert (committed.num_shards, committed.metrics) == (2, {"loss": 0.5})
    assert committed.size_bytes > 0
    assert committed.is_latest
    assert not committed.is_best


async def test_a_report_received_twice_commits_once(running: Catalogue) -> None:
    await write_checkpoint(running.object_store, 50)
    assert reported(await running.deliver(make_written(50), make_written(50))) == [
        ("checkpoint.committed", 50)
    ]
    assert await running.deliver(make_written(50)) == []
    assert await running.intents() == {"list"}


async def test_a_live_job_is_listed_again_and_again(running: Catalogue) -> None:
    """The report was lost: the listing finds the manifest."""
    await write_checkpoint(running.object_store, 50)
    assert reported(await running.wait()) == [("checkpoint.committed", 50)]
    assert await running.wait() == []
    await write_checkpoint(running.object_store, 60)
    assert reported(await running.wait()) == [("checkpoint.committed", 60)]


async def test_the_end_of_a_run_lists_once_more_and_then_no_more(running: Catalogue) -> None:
    await write_checkpoint(running.object_store, 50)
    assert reported(await running.deliver(make_failed())) == [("checkpoint.committed", 50)]
    assert await running.intents() == set()
    await write_checkpoint(running.object_store, 60)
    assert await running.wait() == []


async def test_a_save_without_its_manifest_is_no_checkpoint(running: Catalogue) -> None:
    await running.object_store.put(shard_key(50), b"half a checkpoint")
    assert await running.wait() == []
    assert await running.states() == {}


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("truncated", RejectedReason.SIZE_DIFFERS),
        ("changed", RejectedReason.HASH_DIFFERS),
        ("lost", RejectedReason.SHARD_MISSING),
    ],
)
async def test_a_damaged_shard_is_found(
    running: Catalogue, damage: str, reason: RejectedReason
) -> None:
    await write_checkpoint(running.object_store, 50)
    await harm(running, shard_key(50, rank=1), damage)
    (rejected,) = await running.deliver(make_written(50))
    assert isinstance(rejected, CheckpointRejected)
    assert (rejected.step, rejected.reason) == (50, reason)
    assert "rank-1.safetensors" in rejected.detail


async def harm(running: Catalogue, key: str, damage: str) -> None:
    content = await running.object_store.get(key)
    if damage == "lost":
        await running.object_store.delete(key)
    elif damage == "truncated":
        await running.object_store.put(key, content[:-1])
    else:
        await running.object_store.put(key, content[:-1] + b"!")


@pytest.mark.parametrize(
    "changes",
    [
        {"step": 51},
        {"fence": 2},
        {"job_id": "job_" + "d" * 26},
        {"tenant_id": "other"},
        {"attempt": 2},
        {"world_size": 1},
        {"shards": []},
        {"epoch": 2**70},
        {"metrics": {"loss": "nan"}},
        {"shards": [{"key": "../x/y", "size_bytes": 1, "sha256": "0" * 64, "rank": 0}]},
        {"shards": [{"key": "/etc/passwd", "size_bytes": 1, "sha256": "0" * 64, "rank": 0}]},
        {"shards": [{"key": "manifest.json", "size_bytes": 1, "sha256": "0" * 64, "rank": 0}]},
    ],
    ids=str,
)
async def test_a_manifest_that_speaks_of_anything_else_is_refused(
    running: Catalogue, changes: dict[str, Any]
) -> None:
    await write_checkpoint(running.object_store, 50, changes=changes)
    (rejected,) = await running.deliver(make_written(50))
    assert isinstance(rejected, CheckpointRejected)
    assert (rejected.run_id, rejected.step) == (run_id_for(JOB, 1), 50)
    assert rejected.reason == RejectedReason.MANIFEST_UNREADABLE


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"format": 1, "format": 1}', b"\xff"])
async def test_a_manifest_that_cannot_be_read_is_refused(running: Catalogue, text: bytes) -> None:
    await running.object_store.put(key_of(50), text)
    (rejected,) = await running.wait()
    assert isinstance(rejected, CheckpointRejected)
    assert rejected.reason == RejectedReason.MANIFEST_UNREADABLE


@pytest.mark.parametrize(
    "fields",
    [
        {"manifest_key": "manifest.json"},
        {"manifest_key": f"{PREFIX}elsewhere/manifest.json"},
        {"manifest_key": f"checkpoints/default/job_{'d' * 26}/{name_of(50)}/manifest.json"},
        {"tenant_id": "other", "manifest_key": key_of(50).replace("default", "other")},
    ],
    ids=["outside", "odd name", "other job", "other tenant"],
)
async def test_a_report_that_leads_out_of_its_job_is_ignored(
    running: Catalogue, fields: dict[str, Any]
) -> None:
    assert await running.deliver(make_written(50, **fields)) == []
    assert await running.states() == {}


async def test_the_best_is_judged_by_the_jobs_metric(catalogue: Catalogue) -> None:
    metric = {"name": "accuracy", "goal": "maximize"}
    await catalogue.deliver(make_queued(metric=metric), make_granted())
    is_best = {}
    for step, accuracy in ((10, 0.5), (20, 0.9), (30, 0.7)):
        await write_checkpoint(
            catalogue.object_store, step, changes={"metrics": {"accuracy": accuracy}}
        )
        (committed,) = await catalogue.deliver(make_written(step))
        assert isinstance(committed, CheckpointCommitted)
        is_best[step] = committed.is_best
    assert is_best == {10: True, 20: True, 30: False}


async def test_a_zombies_checkpoint_is_good_but_does_not_move_the_head(running: Catalogue) -> None:
    await write_checkpoint(running.object_store, 100)
    await running.deliver(make_written(100), make_failed(), make_granted(fence=2))
    await write_checkpoint(running.object_store, 150, fence=1)
    (late,) = await running.deliver(make_written(150, fence=1))
    assert isinstance(late, CheckpointCommitted)
    assert not late.is_latest
    await write_checkpoint(running.object_store, 120, fence=2)
    (next_one,) = await running.deliver(make_written(120, fence=2))
    assert isinstance(next_one, CheckpointCommitted)
    assert next_one.is_latest


async def test_a_manifest_under_a_fence_that_another_run_holds_is_refused(
    running: Catalogue,
) -> None:
    changes = {"attempt": 7, "run_id": run_id_for(JOB, 7)}
    await write_checkpoint(running.object_store, 50, changes=changes)
    (rejected,) = await running.deliver(make_written(50))
    assert isinstance(rejected, CheckpointRejected)
    assert rejected.reason == RejectedReason.STALE_FENCE


async def test_a_report_that_is_ahead_of_the_jobs_events_waits_for_them(
    catalogue: Catalogue,
) -> None:
    await write_checkpoint(catalogue.object_store, 50)
    assert await catalogue.deliver(make_written(50)) == []
    assert await catalogue.deliver(make_queued()) == []
    assert reported(await catalogue.deliver(make_granted())) == [("checkpoint.committed", 50)]


async def test_a_resume_is_reported_with_its_checkpoint(running: Catalogue) -> None:
    await write_checkpoint(running.object_store, 100)
    await running.deliver(make_written(100), make_failed(), make_granted(fence=2))
    (restored,) = await running.deliver(make_resumed(key_of(100)))
    assert isinstance(restored, CheckpointRestored)
    assert (restored.step, restored.fence, restored.run_id) == (100, 1, run_id_for(JOB, 1))
    assert (restored.resumed_by_run_id, restored.resumed_by_attempt) == (run_id_for(JOB, 2), 2)


async def test_a_resume_past_very_many_rejected_ones_is_an_event_of_bounded_size(
    running: Catalogue,
) -> None:
    await write_checkpoint(running.object_store, 100)
    await running.deliver(make_written(100), make_failed(), make_granted(fence=2))
    texts = tuple(f"{number}: " + "x" * 2000 for number in range(110))
    (restored,) = await running.deliver(make_resumed(key_of(100), rejected=texts))
    assert isinstance(restored, CheckpointRestored)
    assert len(restored.rejected) == 20
    assert restored.num_rejected_omitted == 90
    assert len(restored.model_dump_json()) < 16 * 1024


async def test_a_run_that_found_no_checkpoint_restored_none(running: Catalogue) -> None:
    assert await running.deliver(make_resumed(None, fence=1)) == []


async def test_a_resume_from_a_checkpoint_not_yet_known_has_it_verified_first(
    running: Catalogue,
) -> None:
    """The service was down when it was written and when the next run was granted."""
    await write_checkpoint(running.object_store, 100)
    emitted = await running.deliver(make_failed(), make_granted(fence=2), make_resumed(key_of(100)))
    emitted += await running.wait()
    assert reported(emitted) == [("checkpoint.committed", 100), ("checkpoint.restored", 100)]


async def test_a_late_checkpoint_leads_once_the_newest_run_trains_on_from_it(
    running: Catalogue,
) -> None:
    await running.deliver(make_failed(), make_granted(fence=2))
    await write_checkpoint(running.object_store, 100)
    (late,) = await running.deliver(make_written(100))
    assert isinstance(late, CheckpointCommitted)
    assert not late.is_latest
    await running.deliver(make_resumed(key_of(100)))
    await write_checkpoint(running.object_store, 90)
    (older,) = await running.deliver(make_written(90))
    assert isinstance(older, CheckpointCommitted)
    assert await leading_steps(running) == [100]


async def leading_steps(running: Catalogue) -> list[int]:
    async with running.database.connection() as connection:
        rows = await connection.fetch("select step from checkpoints where may_lead order by step")
    return [row["step"] for row in rows]


@pytest.mark.parametrize("words", ["{key}", "{name}: size_differs rank-0.safetensors"])
async def test_the_newest_truncated_after_it_was_committed_is_rejected_for_ever(
    running: Catalogue, words: str
) -> None:
    for step in (50, 100):
        await write_checkpoint(running.object_store, step)
        await running.deliver(make_written(step))
    whole = await running.object_store.get(shard_key(100))
    await harm(running, shard_key(100), "truncated")
    invalid = words.format(key=key_of(100), name=name_of(100))
    resumed = make_resumed(key_of(50), rejected=(invalid,))
    emitted = await running.deliver(make_failed(), make_granted(fence=2), resumed)
    assert sorted(reported(emitted)) == [("checkpoint.rejected", 100), ("checkpoint.restored", 50)]
    await running.object_store.put(shard_key(100), whole)
    assert await running.deliver(make_written(100)) == []
    assert await running.wait() == []
    assert await running.good_steps() == [50]


async def test_a_checkpoint_that_a_run_rejected_for_no_reason_stays_good(
    running: Catalogue,
) -> None:
    for step in (50, 100):
        await write_checkpoint(running.object_store, step)
        await running.deliver(make_written(step))
    emitted = await running.deliver(
        make_granted(fence=2), make_resumed(key_of(50), rejected=(key_of(100), "../../etc"))
    )
    assert reported(emitted) == [("checkpoint.restored", 50)]
    assert await running.good_steps() == [50, 100]


@pytest.mark.parametrize("damage", ["truncated", "lost"])
async def test_the_listing_notices_that_a_good_checkpoint_lost_bytes(
    running: Catalogue, damage: str
) -> None:
    await write_checkpoint(running.object_store, 50)
    await running.deliver(make_written(50))
    await harm(running, shard_key(50), damage)
    assert reported(await running.wait()) == [("checkpoint.rejected", 50)]


async def test_a_pinned_checkpoint_is_said_to_be(running: Catalogue) -> None:
    await write_checkpoint(running.object_store, 50)
    await running.deliver(make_written(50))
    (pinned,) = await running.deliver(CheckpointPin(job_id=JOB, checkpoint_id=id_of(50)))
    assert isinstance(pinned, CheckpointPinned)
    assert pinned.step == 50


@pytest.mark.parametrize(("step", "tenant_id"), [(60, "default"), (50, "other")])
async def test_a_pin_of_what_the_sender_does_not_have_is_refused(
    running: Catalogue, step: int, tenant_id: str
) -> None:
    await write_checkpoint(running.object_store, 50)
    await running.deliver(make_written(50))
    pin = CheckpointPin(job_id=JOB, checkpoint_id=id_of(step))
    (refused,) = await running.deliver(pin, tenant_id=tenant_id)
    assert isinstance(refused, CheckpointPinRejected)
    assert refused.command_event_id


async def test_a_run_that_begins_again_behind_a_good_checkpoint_is_announced_once(
    running: Catalogue,
) -> None:
    await write_checkpoint(running.object_store, 100)
    await running.deliver(make_written(100))
    await running.deliver(make_failed(), make_granted(fence=2))
    await write_checkpoint(running.object_store, 50, fence=2)
    committed, went_back = await running.deliver(make_written(50, fence=2))
    assert isinstance(committed, CheckpointCommitted)
    assert isinstance(went_back, CheckpointingWentBack)
    assert (went_back.run_id, went_back.step) == (run_id_for(JOB, 2), 50)
    assert (went_back.further_checkpoint_id, went_back.further_step) == (id_of(100), 100)
    await write_checkpoint(running.object_store, 60, fence=2)
    emitted = await running.deliver(make_written(60, fence=2))
    assert reported(emitted) == [("checkpoint.committed", 60)]


async def test_a_run_that_goes_on_from_the_newest_checkpoint_is_not(running: Catalogue) -> None:
    await write_checkpoint(running.object_store, 100)
    await running.deliver(make_written(100))
    await running.deliver(make_failed(), make_granted(fence=2))
    await write_checkpoint(running.object_store, 150, fence=2)
    emitted = await running.deliver(make_written(150, fence=2))
    assert reported(emitted) == [("checkpoint.committed", 150)]
