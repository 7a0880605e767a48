"""Large checkpoints: read in turns whose progress is kept, committed by size where it is late."""

import asyncio
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoint_names import MANIFEST
from drivetrain_schemas.checkpoints import (
    CheckpointCommitted,
    CheckpointRejected,
    Manifest,
    RejectedReason,
)
from services.checkpoints import actions, reading, store_intents
from services.checkpoints.core.location import locate
from services.checkpoints.core.pace import Pace
from services.checkpoints.reading import Reader
from services.checkpoints.verification import check, read_shard
from services.runtime.errors import StoreError
from services.runtime.object_store import NoSuchObject
from tests.handlers.checkpoints.builders import (
    JOB,
    key_of,
    make_granted,
    make_resumed,
    make_written,
    name_of,
    shard_key,
    write_checkpoint,
)
from tests.handlers.checkpoints.conftest import SETTINGS, Catalogue, FailingStore


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every checkpoint is read as its turn comes."""
    monkeypatch.setattr(actions, "SMALL_BYTES", 0)


@pytest.fixture
def read_keys(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Which shards are read, in order."""
    keys: list[str] = []
    stream = FailingStore.stream

    def note(self: FailingStore, key: str) -> AsyncIterator[bytes]:
        if not key.endswith(MANIFEST):
            keys.append(key)
        return stream(self, key)

    monkeypatch.setattr(FailingStore, "stream", note)
    return keys


def committed(payloads: list[Payload]) -> list[tuple[int, str]]:
    return [(one.step, one.verified_by) for one in payloads if isinstance(one, CheckpointCommitted)]


async def damage(catalogue: Catalogue, step: int, rank: int = 1) -> None:
    """Other bytes of equal size."""
    content = await catalogue.object_store.get(shard_key(step, rank))
    await catalogue.object_store.put(shard_key(step, rank), b"!" + content[1:])


@pytest.mark.usefixtures("large")
async def test_a_large_checkpoint_is_committed_once_its_bytes_are_read(running: Catalogue) -> None:
    await write_checkpoint(running.object_store, 50)
    assert committed(await running.deliver(make_written(50))) == [(50, "read")]
    assert await running.wait() == []
    assert await running.intents() == {"list"}


@pytest.mark.usefixtures("large")
async def test_a_checkpoint_of_several_turns_is_read_once_and_not_from_the_start_each_time(
    running: Catalogue, read_keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "TURN_SECONDS", 0.0)
    await write_checkpoint(running.object_store, 50)
    assert committed(await running.deliver(make_written(50))) == [(50, "read")]
    assert read_keys == [shard_key(50, 0), shard_key(50, 1)]


async def test_turns_go_round_among_all_that_wait(catalogue: Catalogue) -> None:
    """The newest is read first; once its turn is over, the others come before it again."""
    turns = []
    async with catalogue.database.connection() as connection:
        for job in ("a", "b", "c"):
            await store_intents.want(connection, "read", job, "key")
        for _ in range(6):
            (due,) = await store_intents.due_intents(
                connection, is_read=True, busy_jobs=(), limit=1
            )
            turns.append(due.job_id)
            await store_intents.end_turn(connection, due)
    assert turns == ["c", "b", "a", "c", "b", "a"]


@pytest.mark.usefixtures("large")
async def test_an_error_in_the_second_shard_does_not_lose_the_first(
    running: Catalogue, read_keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = FailingStore.stream

    def fail_for_rank_1(self: FailingStore, key: str) -> AsyncIterator[bytes]:
        if "rank-1" in key:
            raise StoreError("the connection broke")
        return stream(self, key)

    with monkeypatch.context() as patch:
        patch.setattr(FailingStore, "stream", fail_for_rank_1)
        await write_checkpoint(running.object_store, 50)
        assert await running.deliver(make_written(50)) == []
    assert committed(await running.wait()) == [(50, "read")]
    assert read_keys == [shard_key(50, 0), shard_key(50, 1)]


class Slow(FailingStore):
    """Gives a few bytes at a time, and after `num_pieces` of them nothing more."""

    PIECE_SECONDS = 0.05

    def __init__(self, root: Path, num_pieces: int) -> None:
        super().__init__(root)
        self._num_pieces = num_pieces

    async def stream(self, key: str) -> AsyncIterator[bytes]:
        content = await self.get(key)
        if key.endswith(MANIFEST):
            yield content
            return
        size = len(content) // 30
        for number in range(0, len(content), size):
            if number // size == self._num_pieces:
                await asyncio.Event().wait()
            await asyncio.sleep(self.PIECE_SECONDS)
            yield content[number : number + size]


@pytest.mark.parametrize(("num_pieces", "is_silent"), [(1000, False), (5, True)])
async def test_a_slow_store_is_waited_for_and_a_silent_one_is_not(
    tmp_path: Path, num_pieces: int, is_silent: bool
) -> None:
    store = Slow(tmp_path, num_pieces)
    await write_checkpoint(store, 50)
    location = locate("default", JOB, key_of(50))
    assert location is not None
    manifest = await check(store, "default", JOB, location)
    assert isinstance(manifest, Manifest)

    async def no_pause(num_bytes: int) -> None:
        return None

    silence_seconds = 0.1 if is_silent else 20 * Slow.PIECE_SECONDS  # all pieces take longer
    reading_it = read_shard(store, location, manifest.shards[0], silence_seconds, no_pause)
    if is_silent:
        with pytest.raises(TimeoutError):
            await reading_it
    else:
        assert await reading_it is None


@pytest.mark.usefixtures("large")
async def test_one_that_cannot_be_read_in_time_is_committed_by_its_sizes_and_read_later(
    running: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (10, 20):
        await write_checkpoint(running.object_store, step)
        await running.deliver(make_written(step))

    stream = FailingStore.stream

    def fail(self: FailingStore, key: str) -> AsyncIterator[bytes]:
        if not key.endswith(MANIFEST):
            raise StoreError("the connection broke")
        return stream(self, key)

    emitted = []
    with monkeypatch.context() as patch:
        patch.setattr(FailingStore, "stream", fail)
        for step in (30, 40, 50):
            await write_checkpoint(running.object_store, step)
            await running.deliver(make_written(step))
            emitted += await running.wait()
    assert committed(emitted) == [(30, "size"), (40, "size"), (50, "size")]
    assert await running.good_steps() == [10, 20, 30, 40, 50], "two that were read stay"
    await damage(running, 50)
    (rejected,) = [one for one in await running.wait() if isinstance(one, CheckpointRejected)]
    assert (rejected.step, rejected.reason) == (50, RejectedReason.HASH_DIFFERS)
    await running.wait()
    assert (await running.good_steps())[-2:] == [30, 40]


@pytest.mark.usefixtures("large")
async def test_bytes_that_differ_are_found_before_the_commit(running: Catalogue) -> None:
    await write_checkpoint(running.object_store, 50)
    await damage(running, 50)
    (rejected,) = await running.deliver(make_written(50))
    assert isinstance(rejected, CheckpointRejected)
    assert rejected.reason is RejectedReason.HASH_DIFFERS


@pytest.mark.parametrize("small_bytes", [0, actions.SMALL_BYTES])
async def test_what_is_recorded_is_read_again_only_where_a_run_rejected_it(
    running: Catalogue,
    read_keys: list[str],
    monkeypatch: pytest.MonkeyPatch,
    small_bytes: int,
) -> None:
    monkeypatch.setattr(actions, "SMALL_BYTES", small_bytes)
    await write_checkpoint(running.object_store, 50)
    await running.deliver(make_written(50))
    read_keys.clear()
    assert await running.deliver(make_written(50)) == []
    assert await running.wait() == []
    assert read_keys == []
    await damage(running, 50)
    resumed = make_resumed(None, rejected=(key_of(50),))
    emitted = await running.deliver(make_granted(fence=2), resumed)
    assert [one.kind.type for one in emitted] == ["checkpoint.rejected"]


async def test_the_one_that_was_read_longest_ago_is_read_again_within_its_own_budget(
    running: Catalogue, read_keys: list[str]
) -> None:
    for step in (10, 20):
        await write_checkpoint(running.object_store, step)
        await running.deliver(make_written(step))
    read_keys.clear()
    await running.want_reread()
    assert await running.work() == []
    assert read_keys == [], "both were read today"
    async with running.database.connection() as connection:
        await connection.execute(
            "update checkpoints set read_at = read_at - (100 - step) * interval '1 day'"
        )
    await damage(running, 10)
    await running.want_reread()
    await running.want_reread()
    assert [one.kind.type for one in await running.work()] == ["checkpoint.rejected"]
    assert set(read_keys) <= {shard_key(10, 0), shard_key(10, 1)}


async def test_nothing_is_read_again_while_another_waits_to_be_read(running: Catalogue) -> None:
    await write_checkpoint(running.object_store, 10)
    await running.deliver(make_written(10))
    async with running.database.connection() as connection:
        await connection.execute("update checkpoints set read_at = read_at - interval '9 days'")
        await connection.execute(
            """
            insert into intents (kind, job_id, subject, due_at)
            values ('read', $1, $2, clock_timestamp() + interval '1 hour')
            """,
            JOB,
            key_of(20),
        )
    await running.want_reread()
    async with running.database.connection() as connection:
        assert await connection.fetchval("select count(*) from intents where kind = 'read'") == 1


async def test_one_that_cannot_be_read_does_not_keep_others_from_being_read_again(
    running: Catalogue, read_keys: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for step in (10, 20):
        await write_checkpoint(running.object_store, step)
        await running.deliver(make_written(step))
    async with running.database.connection() as connection:
        await connection.execute(
            "update checkpoints set read_at = read_at - (100 - step) * interval '1 day'"
        )
    stream = FailingStore.stream

    def fail_for_step_10(self: FailingStore, key: str) -> AsyncIterator[bytes]:
        if name_of(10) in key:
            raise StoreError("the disk has a bad block")
        return stream(self, key)

    monkeypatch.setattr(FailingStore, "stream", fail_for_step_10)
    monkeypatch.setattr(reading, "Pace", lambda *_, **__: Pace(1e12, burst_seconds=0.0))
    reader = Reader(running.database, running.object_store, SETTINGS)
    await reader.want_reread()
    for _ in range(3):
        await running.wait()
    read_keys.clear()

    await reader.want_reread()
    await running.work()

    assert read_keys == [shard_key(20, 0), shard_key(20, 1)]


async def test_no_more_of_a_manifest_is_read_than_one_may_have(
    running: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its size was a moment ago."""
    await write_checkpoint(running.object_store, 50)
    num_pieces = 0

    async def endless(self: FailingStore, key: str) -> AsyncIterator[bytes]:
        nonlocal num_pieces
        while True:
            num_pieces += 1
            yield b"x" * 2**20

    monkeypatch.setattr(FailingStore, "stream", endless)
    (rejected,) = await running.deliver(make_written(50))
    assert isinstance(rejected, CheckpointRejected)
    assert rejected.reason is RejectedReason.MANIFEST_UNREADABLE
    assert num_pieces == 17


async def test_pipes_in_place_of_shards_block_no_thread(running: Catalogue) -> None:
    """A pipe has no size, and neither has the shard that its manifest names."""
    key = await write_checkpoint(running.object_store, 50)
    path = running.object_store._folder / shard_key(50, 1)
    path.unlink()
    os.mkfifo(path)
    manifest = json.loads(await running.object_store.get(key))
    manifest["shards"][1]["size_bytes"] = 0
    await running.object_store.put(key, json.dumps(manifest).encode())
    with pytest.raises(NoSuchObject):
        async with asyncio.timeout(10):
            await running.object_store.get(shard_key(50, 1))
    (rejected,) = await running.deliver(make_written(50))
    assert isinstance(rejected, CheckpointRejected)
    assert rejected.reason is RejectedReason.SHARD_MISSING


async def test_a_deleted_checkpoint_is_not_read(running: Catalogue, read_keys: list[str]) -> None:
    for step in (10, 20, 30, 40):
        await write_checkpoint(running.object_store, step)
        await running.deliver(make_written(step))
    read_keys.clear()
    async with running.database.connection() as connection:
        await connection.execute(
            "insert into intents (kind, job_id, subject) values ('read', $1, $2)", JOB, key_of(10)
        )
    assert await running.work() == []
    assert read_keys == []
    assert await running.intents() == {"list"}
