"""Stored data fails: an open checkpoint, the newest one, the read model."""

import asyncio
import os
from pathlib import Path

import asyncpg
import pytest

from tests.faults import strikes
from tests.faults.conftest import CheckAll, Submit
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(900)


def checkpoint_directory(job: TrainingJob) -> Path:
    return job.platform.home / "objects/checkpoints/default" / job.job_id


def manifests(job: TrainingJob) -> list[Path]:
    return sorted(checkpoint_directory(job).glob("*/manifest.json"))


def test_a_write_fails_in_the_middle_of_a_checkpoint(submit: Submit, check_all: CheckAll) -> None:
    """A file replaces the directory: every write of the open checkpoint fails."""
    job = submit()
    job.wait_for_strike()
    folder = checkpoint_directory(job)
    hidden = folder.with_name("hidden")

    def is_open() -> bool:
        return any(not (item / "manifest.json").exists() for item in folder.iterdir())

    wait_until(is_open, "a checkpoint is being written", every=0.001)
    os.rename(folder, hidden)
    folder.write_text("in the way")
    before = job.step()
    job.wait_step(
        before + 60
    )  # training continues past the next checkpoint, which fails completely
    folder.unlink()
    os.rename(hidden, folder)
    check_all(job, attempts=1)


def test_the_object_store_is_moved_away_and_back(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    """No empty store is created in its place, and no checkpoint is judged meanwhile."""
    job = submit()
    job.wait_for_strike()
    wait_until(lambda: manifests(job), "a checkpoint", every=0.02)
    objects, moved = platform.home / "objects", platform.home / "moved"
    objects.rename(moved)
    wait_until(lambda: job.events("checkpointing.failed"), "the failure is shown", seconds=120)
    (failed,) = job.events("checkpointing.failed")
    assert failed["reason"] == "store_unavailable"
    assert not objects.exists()
    assert job.events("checkpoint.rejected") + job.events("checkpoint.restored") == []
    moved.rename(objects)
    check_all(job, attempts=1)
    wait_until(lambda: job.events("checkpointing.recovered"), "it saves again", seconds=120)


def test_the_newest_checkpoint_is_truncated(submit: Submit, check_all: CheckAll) -> None:
    job = submit()
    job.wait_for_strike()
    wait_until(lambda: len(manifests(job)) >= 2, "a second checkpoint", every=0.02)
    assert job.step() < 240
    strikes.kill(job.shims() + job.ranks())
    newest = manifests(job)[-1]
    shard = next(newest.parent.glob("*.safetensors"))
    os.truncate(shard, shard.stat().st_size // 2)
    check_all(job, attempts=2)
    (restored,) = job.events("checkpoint.restored")
    assert any(newest.parent.name in key for key in restored["rejected"])
    assert newest.parent.name in str(job.events("checkpoint.rejected"))
    assert restored["step"] > 0


def test_the_gateways_schema_is_dropped_and_rebuilt(
    platform: StandalonePlatform, submit: Submit, check_all: CheckAll
) -> None:
    job = submit()
    job.wait_for_strike()
    before = [(item["type"], item["data"]) for item in job.timeline()]

    async def drop() -> None:
        connection = await asyncpg.connect(platform.admin["postgres_dsn"])
        await connection.execute("drop schema gateway cascade")
        await connection.close()

    old = platform.pid("gateway")
    asyncio.run(drop())
    strikes.kill([old])
    platform.wait_ready("gateway", other_than=old)

    def is_rebuilt() -> bool:
        now = [(item["type"], item["data"]) for item in job.timeline()]
        return all(item in now for item in before)

    wait_until(is_rebuilt, "the timeline is there again", seconds=60)
    check_all(job, attempts=1)
