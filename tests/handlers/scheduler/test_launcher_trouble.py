"""What becomes of runs when their launcher is unavailable, refuses, or gives a reason of an end."""

import asyncio
from datetime import UTC, datetime

import pytest
from prometheus_client import REGISTRY

from drivetrain_schemas.ids import job_id_for, pod_id_for, run_id_for
from drivetrain_schemas.jobs import JobState
from services.scheduler.core.pods import EndKind, EndReason, Sight
from services.scheduler.launchers import calls
from services.scheduler.launchers.base import LauncherUnavailable, Observation
from tests.conftest import OpenDatabase
from tests.handlers.scheduler.world import FakeLauncher, World, make_submit, start

JOB = job_id_for("default", "r1")
POD, SECOND = (pod_id_for(JOB, 1, index) for index in (0, 1))
EVICTED = EndReason(EndKind.DISRUPTED, "evicted: the node was low on memory")
NO_RETRIES = {"retries": {"limit": 0}}


def is_away() -> float:
    return REGISTRY.get_sample_value("drivetrain_scheduler_launcher_away")


def num_outages() -> float:
    return REGISTRY.get_sample_value("drivetrain_scheduler_launcher_outages_total")


async def test_an_outage_changes_no_run_and_is_counted_once(world: World):
    await start(world)
    before = num_outages()
    world.launcher.is_away = True
    world.launcher.end(POD)
    for _ in range(3):
        await world.rounds()
        await world.clock.advance(60)
    assert await world.types() == []
    assert num_outages() == before + 1

    world.launcher.is_away = False
    await world.rounds()
    assert await world.types() == ["run.succeeded", "allocation.released", "job.succeeded"]


async def test_what_was_asked_during_an_outage_is_done_after_it(world: World):
    await start(world, resources={"devices": 2})
    world.launcher.is_away = True
    await world.cancel(JOB)
    await world.submit(make_submit("r2"))
    await world.rounds()
    assert world.launcher.notices == {}

    world.launcher.is_away = False
    for _ in range(3):
        await world.loop.round(world.platform)
    assert world.launcher.notices[POD].reason == "cancel"
    assert (await world.job(job_id_for("default", "r2"))).state is not JobState.QUEUED


async def test_the_time_of_an_outage_is_not_time_that_a_pod_took_to_start(world: World):
    world.launcher.sights[POD] = Observation(Sight.CREATED)
    await start(world, **NO_RETRIES)
    world.launcher.is_away = True
    await world.rounds()
    await world.clock.advance(600)
    world.launcher.is_away = False
    await world.rounds()
    await world.clock.advance(29)
    await world.rounds()
    assert world.launcher.launches == [POD]
    assert world.launcher.killed == []


async def test_a_launch_without_an_answer_is_repeated_and_not_recorded(world: World):
    await world.submit(make_submit(**NO_RETRIES))
    real = world.launcher.launch

    async def unanswered(spec):
        raise LauncherUnavailable("no answer")

    world.launcher.launch = unanswered
    for _ in range(5):
        world.loop.wake()
        await world.loop.round(world.platform)
    world.launcher.launch = real
    await world.clock.advance(3)
    await world.rounds()
    assert world.launcher.launches == [POD]
    assert (await world.job(JOB)).state is JobState.RUNNING


async def test_why_a_launch_has_no_answer_is_logged(world: World, capsys):
    """The run stays as it is until somebody reads this and mends it."""
    await world.submit(make_submit(**NO_RETRIES))

    async def unanswered(spec):
        raise LauncherUnavailable('serviceaccount "jobs" not found')

    world.launcher.launch = unanswered
    await world.rounds()
    said = capsys.readouterr()
    assert 'serviceaccount "jobs" not found' in (said.out + said.err).replace("\\", "")


async def test_a_kill_whose_result_cannot_be_seen_is_repeated(world: World):
    """A pod that wrote its exit just before it was killed has ended by itself."""
    await start(world)
    world.launcher.sights[POD] = Observation(Sight.DEAD)
    real_kill, real_observe = world.launcher.kill, world.launcher.observe

    async def kill(pods):
        world.launcher.end(POD)
        world.launcher.is_away = True
        return {pod.pod_id for pod in pods}

    world.launcher.kill = kill
    await world.rounds()
    assert await world.types() == []

    world.launcher.kill, world.launcher.observe = real_kill, real_observe
    world.launcher.is_away = False
    await world.rounds()
    assert (await world.types())[0] == "run.succeeded"


async def test_a_refused_launch_ends_the_run_with_the_reason_of_the_cluster(world: World):
    why = EndReason(EndKind.INVALID, "refused by the webhook policy.example: no root")
    world.launcher.refusals[SECOND] = why
    await world.submit(make_submit(resources={"devices": 4}, retries={"limit": 3}))
    await world.emitted()
    await world.rounds()
    assert world.launcher.killed == [SECOND]
    world.launcher.end(POD, "interrupted")
    await world.rounds()

    sent = await world.emitted()
    by_type = {payload.kind.type: payload for payload in sent}
    assert by_type["run.failed"].detail == why.detail
    assert by_type["run.failed"].exit_code is None
    assert by_type["job.failed"].detail == f"{why.detail} (not tried again: a retry cannot help)"


async def test_a_job_that_the_cluster_has_no_room_for_waits_longer_each_time(world: World):
    why = EndReason(EndKind.DISRUPTED, "the quota gpu of the namespace is used up")
    waits = []
    await world.submit(make_submit(**NO_RETRIES))
    for attempt in (1, 2, 3):
        world.launcher.refusals[pod_id_for(JOB, attempt, 0)] = why
        await world.emitted()
        await world.rounds()
        by_type = {payload.kind.type: payload for payload in await world.emitted()}
        assert by_type["run.interrupted"].detail == why.detail
        waits.append(by_type["job.retrying"].backoff_seconds)
        async with world.database.transaction() as tx:
            await tx.connection.execute("update jobs set not_before_at = now()")
    assert waits == [5, 10, 20]


async def test_an_evicted_pod_uses_no_retry_and_the_job_goes_on_at_once(world: World):
    await start(world, **NO_RETRIES)
    world.launcher.sights[POD] = Observation(Sight.DEAD, reason=EVICTED)
    await world.rounds()

    sent = await world.emitted()
    assert [payload.kind.type for payload in sent] == [
        "run.interrupted",
        "allocation.released",
        "job.retrying",
        "allocation.granted",
        "run.starting",
        "run.started",
    ]
    assert sent[0].detail == EVICTED.detail


async def test_the_reason_of_an_end_survives_a_restart(world: World):
    """The first pod of a gang is recorded as evicted; the second one ends later."""
    await start(world, resources={"devices": 4}, **NO_RETRIES)
    world.launcher.sights[POD] = Observation(Sight.DEAD, reason=EVICTED)
    await world.rounds()
    del world.launcher.sights[POD]
    world.restart()
    world.launcher.end(SECOND, "failed", ended_at=datetime(2026, 1, 1, tzinfo=UTC))
    await world.rounds()
    assert (await world.emitted())[0].detail == EVICTED.detail


async def test_pods_are_launched_and_stopped_side_by_side(database: OpenDatabase):
    """One after another they would never meet at the barrier."""
    nodes = [{"node_id": f"n{number}", "slots": 1} for number in range(64)]
    world = await World(await database("scheduler"), FakeLauncher(), nodes=nodes).register()
    barrier = asyncio.Barrier(16)
    real = {"launch": world.launcher.launch, "notify": world.launcher.notify}

    async def launch(spec):
        await barrier.wait()
        await real["launch"](spec)

    async def notify(pod, notice):
        await barrier.wait()
        await real["notify"](pod, notice)

    world.launcher.launch, world.launcher.notify = launch, notify
    await world.submit(*(make_submit(f"r{number}") for number in range(64)))
    await world.rounds()
    assert len(world.launcher.launches) == 64

    for number in range(64):
        await world.cancel(job_id_for("default", f"r{number}"))
    await world.rounds()
    assert len(world.launcher.notices) == 64


async def test_a_launch_that_hangs_holds_nothing_up_for_long(world: World, monkeypatch):
    monkeypatch.setattr(calls, "CALL_SECONDS", 0.05)
    await start(world)
    real = world.launcher.launch

    async def hang(spec):
        await asyncio.get_running_loop().create_future()

    world.launcher.launch = hang
    await world.submit(make_submit("r2"))
    world.launcher.end(POD)
    for _ in range(3):
        world.loop.wake()
        await world.loop.round(world.platform)
    assert (await world.job(JOB)).state is JobState.SUCCEEDED

    world.launcher.launch = real
    await world.clock.advance(3)
    await world.rounds()
    assert (await world.job(job_id_for("default", "r2"))).state is JobState.RUNNING


async def test_a_look_at_the_pods_that_hangs_is_an_outage(world: World, monkeypatch):
    monkeypatch.setattr(calls, "CALL_SECONDS", 0.05)
    await start(world)
    real = world.launcher.observe
    before = num_outages()

    async def hang(pods):
        return await asyncio.get_running_loop().create_future()

    world.launcher.observe = hang
    world.launcher.end(POD)
    await world.rounds()
    assert (await world.types(), num_outages()) == ([], before + 1)
    world.launcher.observe = real
    await world.rounds()
    assert (await world.types())[0] == "run.succeeded"


async def test_a_pod_whose_node_does_not_answer_keeps_its_slots_and_says_so(world: World):
    await start(world, resources={"devices": 4})
    silent = "n2 does not answer since 12:00 UTC"
    world.launcher.sights[SECOND] = Observation(Sight.ALIVE, unreachable=silent)
    world.launcher.unkillable = {SECOND}
    await world.rounds()
    (said,) = await world.emitted()
    assert (said.run_id, said.node_ids, said.detail) == (run_id_for(JOB, 1), ("n2",), silent)
    await world.submit(make_submit("r2"))
    await world.rounds()
    (waiting,) = [each for each in await world.emitted() if each.kind.type == "job.waiting"]
    (holder,) = waiting.holders
    assert (holder.job_id, holder.num_slots) == (JOB, 4)
    assert holder.detail == "does not answer: n2; held until its pods are proven gone"

    # Its cancel stops the other pod, and kills this one in vain.
    await world.cancel(JOB)
    await world.emitted()
    world.launcher.end(POD, "interrupted")
    for _ in range(5):
        await world.clock.advance(60)
        await world.rounds()
    assert SECOND in world.launcher.killed
    assert await world.types() == []

    world.launcher.unkillable = set()
    await world.clock.advance(60)
    await world.rounds()
    sent = await world.types()
    assert sent[:3] == ["run.cancelled", "allocation.released", "job.cancelled"]
    assert "allocation.granted" in sent


async def test_a_node_that_answers_again_is_said_once_and_over_a_restart(world: World):
    await start(world)
    for why in ("n1 does not answer", "n1 does not answer for an hour"):
        world.launcher.sights[POD] = Observation(Sight.ALIVE, unreachable=why)
        await world.rounds()
        world.restart()
        await world.rounds()
    world.launcher.sights[POD] = Observation(Sight.ALIVE)
    await world.rounds()
    await world.rounds()
    sent = await world.emitted()
    assert [(each.kind.type, each.node_ids, each.detail) for each in sent] == [
        ("run.unreachable", ("n1",), "n1 does not answer"),
        ("run.unreachable", (), ""),
    ]


async def test_an_unreachable_pod_was_not_seen_alive(world: World):
    """The owner does not pay for the time in which nothing was known."""
    await start(world)
    world.launcher.sights[POD] = Observation(Sight.ALIVE, unreachable="n1 does not answer")
    await world.clock.advance(100)
    await world.rounds()
    assert world.pods.seconds_since_alive()[POD] == 100


async def test_pods_that_never_get_an_answer_do_not_keep_the_others_from_starting(
    database: OpenDatabase, monkeypatch
):
    """They come first in each round, and use up its time."""
    monkeypatch.setattr(calls, "MAX_AT_ONCE", 2)
    monkeypatch.setattr(calls, "CALL_SECONDS", 0.05)
    nodes = [{"node_id": "n1", "slots": 6}]
    world = await World(await database("scheduler"), FakeLauncher(), nodes=nodes).register()
    await world.submit(*(make_submit(f"r{number}") for number in range(6)))
    world.loop.wake()
    await world.loop.round(world.platform)
    real = world.launcher.launch
    broken = {pod.pod_id for live in world.loop._live_runs()[:4] for pod in live.pods}

    async def launch(spec):
        if spec.pod_id in broken:
            await asyncio.get_running_loop().create_future()
        await real(spec)

    world.launcher.launch = launch
    for _ in range(4):
        await world.loop.round(world.platform)
    assert len(world.launcher.launches) == 2


async def test_a_launcher_hears_of_an_idle_platform_once_the_state_is_known(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    """What it finds beside no pods belongs to no run; unknown pods would be taken for that."""
    asked: list[tuple[bool, int]] = []
    observe = world.launcher.observe

    async def noted(pods):
        asked.append((world.loop.state is not None, len(pods)))
        return await observe(pods)

    monkeypatch.setattr(world.launcher, "observe", noted)
    await world.rounds()
    await world.loop.round(world.platform)
    assert asked
    assert set(asked) == {(True, 0)}
