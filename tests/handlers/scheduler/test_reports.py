"""Heartbeats and beacons: suspicion, and that nothing is killed for it."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from drivetrain_schemas.access import pod_client
from drivetrain_schemas.ids import job_id_for, pod_id_for, run_id_for
from drivetrain_schemas.jobs import JobCancel
from drivetrain_schemas.reports import PodHeartbeat
from drivetrain_schemas.runs import RunState
from drivetrain_schemas.topics import REPORTS
from services.runtime.bus import Record
from services.scheduler import instruments, store_pods, store_runs
from tests.conftest import OpenDatabase
from tests.events import handle_batch, make_event, make_record
from tests.handlers.scheduler.world import FakeLauncher, World, make_submit

JOB = job_id_for("default", "r1")
RUN = run_id_for(JOB, 1)
POD = pod_id_for(JOB, 1, 0)


def beat(step: int, fence: int = 1, run_id: str = RUN) -> PodHeartbeat:
    return PodHeartbeat(
        tenant_id="default",
        job_id=JOB,
        run_id=run_id,
        attempt=1,
        fence=fence,
        pod_id=POD,
        phase="training",
        step=step,
        sent_at=datetime.now(UTC),
    )


async def receive(world: World, *beats: PodHeartbeat) -> None:
    await handle_batch(world.database, world.leases.on_reports, *map(make_event, beats))


async def after_beacons(world: World, seconds: int) -> None:
    """The scheduler's beacons come back on every partition while this time passes."""
    for _ in range(0, seconds, 2):
        await world.clock.advance(2)
        beacon = world.leases._beacon(REPORTS.name, f"{world.leases._beacon_source}-0")
        records = [
            Record(REPORTS.name, partition, 0, 0, beacon.key, beacon.value, beacon.headers)
            for partition in range(REPORTS.partitions)
        ]
        async with world.database.transaction() as tx:
            assert not await world.leases.on_reports(tx, records)


async def running(world: World) -> None:
    await world.submit(make_submit())
    await world.rounds()
    await world.emitted()


async def run_state(world: World) -> RunState:
    async with world.database.connection() as connection:
        (run,) = await store_runs.live_runs(connection)
    return run.state


async def rows(world: World) -> list[tuple[str, int]]:
    async with world.database.connection() as connection:
        found = await connection.fetch("select pod_id, step from heartbeats")
    return [tuple(row) for row in found]


async def test_the_newest_heartbeat_of_a_pod_is_kept_at_most_once_a_second(world: World):
    await running(world)

    await receive(world, beat(1), beat(2), beat(3))
    assert await rows(world) == [(POD, 3)]
    await receive(world, beat(4))
    assert await rows(world) == [(POD, 3)]

    async with world.database.transaction() as tx:
        await tx.connection.execute("update heartbeats set heard_at = now() - interval '2 seconds'")
    await receive(world, beat(5))
    assert await rows(world) == [(POD, 5)]


async def test_another_fence_and_a_run_that_is_over_are_ignored(world: World):
    await running(world)
    async with world.database.transaction() as tx:
        await tx.connection.execute("update runs set fence = 7")

    await receive(world, beat(1, fence=6))
    await receive(world, beat(1, fence=8))
    await receive(world, beat(1, fence=7, run_id=run_id_for(JOB, 9)))
    assert await rows(world) == []
    assert not world.leases.has_recent_heartbeat(RUN)

    await receive(world, beat(1, fence=7))
    assert await rows(world) == [(POD, 1)]
    assert world.leases.has_recent_heartbeat(RUN)


async def test_heartbeats_of_other_pods_are_ignored_and_counted(world: World):
    """Neither a made-up pod of a live run counts, nor a live pod under another run or job."""
    await running(world)
    await world.submit(make_submit("r2"))
    await world.rounds()
    other = job_id_for("default", "r2")
    forged = [
        beat(9).model_copy(update={"pod_id": pod_id_for(JOB, 1, index)}) for index in range(1, 200)
    ]
    forged.append(beat(9).model_copy(update={"pod_id": pod_id_for(other, 1, 0)}))
    forged.append(beat(9, run_id=run_id_for(other, 1)))
    ignored = instruments.STALE_HEARTBEATS._value.get()

    await receive(world, beat(1), *forged)

    assert await rows(world) == [(POD, 1)]
    assert instruments.STALE_HEARTBEATS._value.get() - ignored == len(forged)


async def test_a_forged_heartbeat_displaces_none_of_its_batch(world: World):
    await running(world)
    await receive(world, beat(1), beat(9, fence=5))
    assert await rows(world) == [(POD, 1)]


async def test_heartbeats_end_with_their_run(world: World):
    await running(world)
    await receive(world, beat(1))
    world.launcher.end(POD)
    await world.rounds()
    assert await rows(world) == []

    await receive(world, beat(2))
    assert await rows(world) == []


async def test_silence_makes_a_run_suspect_and_a_heartbeat_takes_it_back(world: World):
    await running(world)
    await receive(world, beat(1))
    await after_beacons(world, 14)
    await world.rounds()

    (suspected,) = await world.emitted()
    assert suspected.kind.type == "run.suspected"
    assert suspected.last_heard_at is not None
    assert await run_state(world) is RunState.SUSPECT

    await after_beacons(world, 600)
    await world.rounds()
    assert world.launcher.killed == []
    assert world.launcher.notices == {}
    assert await world.types() == []

    await receive(world, beat(2))
    await world.rounds()
    assert await world.types() == ["run.heard"]
    assert await run_state(world) is RunState.RUNNING


async def test_silence_means_nothing_while_the_beacon_does_not_come_back(world: World):
    await running(world)
    await world.clock.advance(600)
    await world.rounds()

    assert await world.types() == []


async def test_a_new_scheduler_does_not_take_its_own_start_for_a_sign_of_life(world: World):
    await running(world)
    await after_beacons(world, 14)
    await world.rounds()
    world.restart()
    await world.emitted()

    await world.rounds()
    await world.rounds()

    assert await world.types() == []
    assert await run_state(world) is RunState.SUSPECT


async def test_a_suspect_run_can_still_succeed(world: World):
    await running(world)
    await after_beacons(world, 14)
    await world.rounds()
    await world.emitted()
    world.launcher.end(POD)
    await world.rounds()

    assert await world.types() == ["run.succeeded", "allocation.released", "job.succeeded"]


async def test_beacons_go_to_every_partition(world: World):
    import asyncio

    task = asyncio.create_task(world.leases.send_beacons(world.platform))
    async with asyncio.timeout(5):
        while len(world.bus.records("drivetrain.reports")) < REPORTS.partitions:
            await asyncio.sleep(0)
    task.cancel()

    keys = {record.key for record in world.bus.records("drivetrain.reports")}
    assert len(keys) == REPORTS.partitions


async def test_what_belongs_on_another_topic_is_set_aside(world: World) -> None:
    """Pods may write reports, and nothing that the platform itself says."""
    record = make_record(make_event(JobCancel(job_id=JOB)), topic="drivetrain.reports")
    async with world.database.transaction() as tx:
        (rejected,) = await world.leases.on_reports(tx, [record])
    assert (rejected.record, rejected.reason) == (record, "wrong_topic")


@pytest.mark.parametrize("is_end", [True, False], ids=["end of runs", "heartbeats"])
async def test_heartbeats_and_the_end_of_their_runs_cannot_deadlock(world: World, is_end: bool):
    """Both take the pods' rows in one order: while the first is held, they hold none behind it."""
    pods = [pod_id_for(JOB, 1, index) for index in (1, 0)]
    runs = [run_id_for(JOB, attempt) for attempt in (1, 2)]
    beats = [
        beat(1, run_id=run).model_copy(update={"pod_id": pod})
        for run, pod in zip(runs, pods, strict=True)
    ]
    async with world.database.connection() as connection:
        await store_pods.put_heartbeats(connection, beats)
        await connection.execute("update heartbeats set heard_at = heard_at - interval '1 hour'")

    async def write() -> None:
        async with world.database.transaction() as tx:
            if is_end:
                await store_pods.delete_heartbeats(tx.connection, runs)
            else:
                await store_pods.put_heartbeats(tx.connection, beats)

    async with world.database.connection() as other, other.transaction():
        await other.execute("select from heartbeats where pod_id = $1 for update", pods[1])
        writing = asyncio.create_task(write())
        async with asyncio.timeout(10), world.database.connection() as watching:
            while not await watching.fetchval(
                "select exists (select from pg_locks where not granted and locktype = $1)",
                "transactionid",
            ):
                await asyncio.sleep(0.01)
        await other.execute("select from heartbeats where pod_id = $1 for update nowait", pods[0])
    await writing


async def test_a_pod_is_told_how_much_output_the_operator_allows(database: OpenDatabase):
    launcher = FakeLauncher()
    world = World(await database("scheduler"), launcher, max_log_kib_per_second_of_pod=77)
    await running(await world.register())
    assert launcher.specs[POD].max_log_kib_per_second == 77


async def test_a_pod_writes_in_the_share_of_its_job(database: OpenDatabase):
    world = World(await database("scheduler"), FakeLauncher())
    await running(await world.register())
    spec = world.launcher.specs[POD]
    assert spec.kafka.client_id == pod_client(spec.job_id)


async def test_only_a_pod_with_the_token_of_its_run_can_send_a_heartbeat(
    database: OpenDatabase,
):
    key = SecretStr("a-key-that-only-services-have")
    world = World(await database("scheduler"), FakeLauncher(), run_token_key=key)
    await running(await world.register())
    token = world.launcher.specs[POD].run_token
    assert token is not None

    for invented in (None, "0" * len(token)):
        event = replace(make_event(beat(1)), run_token=invented)
        await handle_batch(world.database, world.leases.on_reports, event)
    assert await rows(world) == []

    event = replace(make_event(beat(2)), run_token=token)
    await handle_batch(world.database, world.leases.on_reports, event)
    assert await rows(world) == [(POD, 2)]
