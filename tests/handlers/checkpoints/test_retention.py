"""What goes while a run is alive, and what happens when the store fails in the middle."""

from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoints import CheckpointDeleted, CheckpointPin
from services.checkpoints.worker import MAX_WAITS
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
    shard_key,
    write_checkpoint,
)
from tests.handlers.checkpoints.conftest import Catalogue


async def save(catalogue: Catalogue, *steps: int, fence: int = 1) -> list[Payload]:
    emitted = []
    for step in steps:
        changes = {"metrics": {"accuracy": (step % 40) / 100}}
        await write_checkpoint(catalogue.object_store, step, fence=fence, changes=changes)
        emitted += await catalogue.deliver(make_written(step, fence=fence))
    return emitted


def deleted_steps(payloads: list[Payload]) -> list[int]:
    return [one.step for one in payloads if isinstance(one, CheckpointDeleted)]


async def keys(catalogue: Catalogue) -> set[str]:
    return {item.key for item in await catalogue.object_store.list(PREFIX)}


async def test_the_last_three_stay_and_the_others_go_whole(running: Catalogue) -> None:
    emitted = await save(running, 10, 20, 30, 40, 50)
    assert deleted_steps(emitted) == [10, 20]
    assert await running.good_steps() == [30, 40, 50]
    assert {key.split("/")[3] for key in await keys(running)} == {
        key_of(step).split("/")[3] for step in (30, 40, 50)
    }


async def test_a_run_that_began_again_at_step_0_deletes_nothing_of_the_run_before(
    running: Catalogue,
) -> None:
    """A script that does not resume, or a store that was unavailable when it looked."""
    await save(running, 990, 995, 999)
    await running.deliver(make_failed(), make_granted(fence=2))
    emitted = await save(running, 10, 20, 30, 40, fence=2)
    assert deleted_steps(emitted) == [990, 10]
    assert await running.good_steps() == [995, 999]
    assert await running.good_steps(fence=2) == [20, 30, 40]


async def test_the_best_and_the_pinned_stay(catalogue: Catalogue) -> None:
    await catalogue.deliver(
        make_queued(
            metric={"name": "accuracy", "goal": "maximize"},
            checkpoint={"keep_last": 2, "keep_best": 1},
        ),
        make_granted(),
    )
    await save(catalogue, 10, 39)
    await catalogue.deliver(CheckpointPin(job_id=JOB, checkpoint_id=id_of(10)))
    emitted = await save(catalogue, 41, 42, 43)
    assert deleted_steps(emitted) == [41]
    assert await catalogue.good_steps() == [10, 39, 42, 43]


async def test_an_interrupted_deletion_continues_later_and_is_reported_once(
    running: Catalogue,
) -> None:
    await save(running, 10, 20, 30)
    running.object_store.fail_deletion_in = 1  # the manifest goes, the first shard does not
    emitted = await save(running, 40)
    assert deleted_steps(emitted) == []
    assert key_of(10) not in await keys(running)
    assert shard_key(10) in await keys(running)
    assert deleted_steps(await running.wait()) == [10]
    assert shard_key(10) not in await keys(running)
    assert await running.wait() == []


async def test_a_half_deleted_checkpoint_is_not_taken_for_a_damaged_one(
    running: Catalogue,
) -> None:
    await save(running, 10, 20, 30)
    running.object_store.fail_deletion_in = 1
    await save(running, 40)
    emitted = await running.deliver(make_written(10))
    assert [one.kind.type for one in emitted + await running.wait()] == ["checkpoint.deleted"]


async def test_a_pin_that_comes_before_the_deletion_saves_the_checkpoint(
    running: Catalogue,
) -> None:
    await save(running, 10, 20, 30)
    await write_checkpoint(running.object_store, 40)
    running.object_store.move_away()
    await running.deliver(make_written(40))
    await running.deliver(CheckpointPin(job_id=JOB, checkpoint_id=id_of(10)))
    running.object_store.move_back()
    assert deleted_steps(await running.wait()) == []
    assert await running.good_steps() == [10, 20, 30, 40]


async def test_what_retention_wanted_gone_stays_when_newer_ones_turn_out_damaged(
    running: Catalogue,
) -> None:
    """What may go is counted again at the moment of the deletion."""
    await save(running, 10, 20, 30)
    async with running.database.transaction() as tx:  # wanted gone, and put off
        await tx.connection.execute(
            """
            insert into intents (kind, job_id, subject, due_at)
            values ('delete', $1, $2, clock_timestamp() + interval '1 hour')
            """,
            JOB,
            id_of(10),
        )
    assert deleted_steps(await save(running, 40)) == []
    await running.object_store.put(shard_key(40), b"damaged")
    await running.deliver(make_written(40))
    assert deleted_steps(await running.wait()) == []
    assert await running.good_steps() == [10, 20, 30]
    assert await running.intents() == {"list"}


async def test_deleted_ones_do_not_come_back_by_a_listing(running: Catalogue) -> None:
    await save(running, 10, 20, 30, 40)
    await write_checkpoint(running.object_store, 10)
    assert await running.wait() == []
    assert await running.good_steps() == [20, 30, 40]


async def test_the_checkpoint_a_new_run_resumes_from_stays(running: Catalogue) -> None:
    await save(running, 10, 20, 30)
    await running.deliver(make_failed(), make_granted(fence=2), make_resumed(key_of(30)))
    await save(running, 31, fence=2)
    assert await running.good_steps() == [20, 30]
    assert await running.good_steps(fence=2) == [31]


async def test_while_the_store_is_unavailable_nothing_is_judged_however_long_it_takes(
    running: Catalogue,
) -> None:
    """The run ends meanwhile: its last checkpoint is committed once the store is back."""
    await save(running, 10, 20, 30)
    await write_checkpoint(running.object_store, 40)
    running.object_store.move_away()
    assert await running.deliver(make_written(40), make_failed()) == []
    for _ in range(MAX_WAITS + 2):
        assert await running.wait() == []
    assert set((await running.states()).values()) == {"good"}
    assert await running.intents() == {"list"}
    running.object_store.move_back()
    emitted = await running.wait() + await running.wait()
    assert [one.kind.type for one in emitted] == ["checkpoint.committed", "checkpoint.deleted"]
    assert await running.good_steps() == [20, 30, 40]
    assert await running.intents() == set()


async def test_a_last_checkpoint_of_which_no_report_arrived_is_found_once_the_store_is_back(
    running: Catalogue,
) -> None:
    await write_checkpoint(running.object_store, 40)
    running.object_store.move_away()
    await running.deliver(make_failed())
    for _ in range(MAX_WAITS + 2):
        assert await running.wait() == []
    running.object_store.move_back()
    assert [one.kind.type for one in await running.wait()] == ["checkpoint.committed"]
    assert await running.intents() == set()


async def test_a_deletion_is_not_given_up_however_long_the_store_is_unavailable(
    running: Catalogue,
) -> None:
    await save(running, 10, 20, 30)
    running.object_store.fail_deletion_in = 1
    await save(running, 40)
    running.object_store.move_away()
    for _ in range(MAX_WAITS + 2):
        assert await running.wait() == []
    running.object_store.move_back()
    assert deleted_steps(await running.wait() + await running.wait()) == [10]
    assert (await running.states())[key_of(10)] == "deleted"
    assert shard_key(10) not in await keys(running)


async def test_nothing_is_judged_while_a_file_is_in_the_place_of_the_jobs_directory(
    running: Catalogue,
) -> None:
    await save(running, 10, 20)
    with running.object_store.in_the_way_of(PREFIX):
        assert await running.deliver(make_written(30)) == []
        assert await running.wait() == []
    await write_checkpoint(running.object_store, 30)
    assert [one.kind.type for one in await running.wait()] == ["checkpoint.committed"]
    assert await running.good_steps() == [10, 20, 30]


async def test_a_checkpoint_that_somebody_removed_is_rejected(running: Catalogue) -> None:
    """The store is there and says so, also where nothing of the job is left."""
    await save(running, 10)
    for key in await keys(running):
        await running.object_store.delete(key)
    assert [one.kind.type for one in await running.wait()] == ["checkpoint.rejected"]
    assert await running.intents() == {"list"}
