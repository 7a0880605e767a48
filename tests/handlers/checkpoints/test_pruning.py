"""What is removed without being asked for, and what is not."""

from drivetrain_schemas.base import Payload
from services.checkpoints import pruning
from services.runtime.object_store import Upload
from tests.handlers.checkpoints.builders import (
    JOB,
    PREFIX,
    key_of,
    make_failed,
    make_granted,
    make_written,
    name_of,
    shard_key,
    write_checkpoint,
)
from tests.handlers.checkpoints.conftest import Catalogue


async def pass_time(catalogue: Catalogue, days: float) -> list[Payload]:
    """As if so much time had passed, all that is due is done."""
    async with catalogue.database.connection() as connection:
        await connection.execute(
            "update runs set ended_at = ended_at - $1 * interval '1 day'", days
        )
        await connection.execute(
            "update checkpoints set changed_at = changed_at - $1 * interval '1 day'", days
        )
    return await catalogue.wait()


async def directories(catalogue: Catalogue) -> set[str]:
    return {item.key.split("/")[3] for item in await catalogue.object_store.list(PREFIX)}


async def leave_unfinished(catalogue: Catalogue, step: int, fence: int = 1) -> None:
    """A save that broke off before its manifest."""
    await catalogue.object_store.put(shard_key(step, 0, fence), b"half")
    await catalogue.object_store.put(f"{PREFIX}{name_of(step, fence)}/.rank-1.json.ab", b"")


async def test_an_unfinished_save_goes_an_hour_after_its_run_has_ended(running: Catalogue) -> None:
    await write_checkpoint(running.object_store, 10)
    await leave_unfinished(running, 20)
    await running.deliver(make_written(10), make_failed())
    await running.wait()
    assert await directories(running) == {name_of(10), name_of(20)}
    await pass_time(running, days=1)
    assert await directories(running) == {name_of(10)}
    assert await running.good_steps() == [10]


async def test_incomplete_uploads_go_an_hour_after_their_run_has_ended(
    running: Catalogue,
) -> None:
    """A bucket shows them in no listing of objects, and they cost as much."""
    ended, live = (Upload(shard_key(20, 0, fence), f"u{fence}") for fence in (1, 2))
    running.object_store.uploads += [ended, live, Upload("checkpoints/default/other", "u")]
    await running.deliver(make_failed(), make_granted(fence=2))
    await running.wait()
    assert ended in running.object_store.uploads
    await pass_time(running, days=1)
    assert ended not in running.object_store.uploads
    assert len(running.object_store.uploads) == 2
    await running.deliver(make_failed(fence=2))
    await pass_time(running, days=1)
    assert len(running.object_store.uploads) == 1


async def test_nothing_that_a_live_run_may_still_write_to_is_removed(running: Catalogue) -> None:
    await leave_unfinished(running, 20)
    await running.deliver(make_failed(), make_granted(fence=2))
    await leave_unfinished(running, 30, fence=2)
    await leave_unfinished(running, 40, fence=9)  # of a run that is not known
    await pass_time(running, days=30)
    assert await directories(running) == {name_of(30, 2), name_of(40, 9)}
    await running.deliver(make_failed(fence=2))
    await pass_time(running, days=1)
    assert await directories(running) == {name_of(40, 9)}


async def test_a_step_is_bounded_and_another_follows(running: Catalogue, monkeypatch) -> None:
    monkeypatch.setattr(pruning, "OBJECTS_PER_STEP", 3)
    for step in (20, 30, 40):
        await leave_unfinished(running, step)
    await running.deliver(make_failed())
    await pass_time(running, days=1)
    assert len(await running.object_store.list(PREFIX)) == 3
    await running.wait()
    assert await directories(running) == set()


async def test_a_rejected_checkpoint_is_kept_for_a_week_to_be_looked_at(
    running: Catalogue,
) -> None:
    await write_checkpoint(running.object_store, 10)
    await running.object_store.put(shard_key(10), b"damaged")
    await running.deliver(make_written(10))
    await pass_time(running, days=8)
    assert await directories(running) == {name_of(10)}, "its run is live"
    await running.deliver(make_failed())
    emitted = await pass_time(running, days=1)
    assert [one.kind.type for one in emitted] == ["checkpoint.deleted"]
    assert await directories(running) == set()
    assert (await running.states()) == {key_of(10): "deleted"}


async def test_a_checkpoint_rejected_just_now_stays(running: Catalogue) -> None:
    await write_checkpoint(running.object_store, 10)
    await running.object_store.put(shard_key(10), b"damaged")
    await running.deliver(make_written(10), make_failed())
    assert await pass_time(running, days=6) == []
    assert await directories(running) == {name_of(10)}


async def test_rows_of_deleted_checkpoints_and_ended_runs_go_in_bounded_steps(
    running: Catalogue, monkeypatch
) -> None:
    for step in (10, 20, 30, 40, 50):
        await write_checkpoint(running.object_store, step)
        await running.deliver(make_written(step))
    await running.deliver(make_failed(), make_granted(fence=2))
    await pruning.prune_rows(running.database)
    assert len(await running.states()) == 5, "they are younger than a week"
    monkeypatch.setattr(pruning, "ROWS_PER_STEP", 1)
    await pass_time(running, days=40)
    for num_left in (4, 3, 3):
        await pruning.prune_rows(running.database)
        assert len(await running.states()) == num_left
    assert await running.good_steps() == [30, 40, 50]
    async with running.database.connection() as connection:
        fences = await connection.fetch("select fence from runs where job_id = $1", JOB)
    assert [row["fence"] for row in fences] == [2]


async def test_an_emptied_directory_of_a_job_leaves_no_directory(running: Catalogue) -> None:
    await leave_unfinished(running, 20)
    await running.deliver(make_failed())
    await pass_time(running, days=1)
    assert not running.object_store.has_directory(PREFIX)
