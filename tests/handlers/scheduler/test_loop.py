"""The reconcile loop on a real Postgres: what is emitted, in which order, what is done to pods."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import asyncpg
import pytest

from drivetrain_schemas.ids import job_id_for, pod_id_for
from drivetrain_schemas.jobs import JobState, Result, WaitingReason
from services.scheduler import instruments, retention
from services.scheduler.core import ports
from services.scheduler.core.model import Node
from services.scheduler.core.pods import Sight
from services.scheduler.core.ports import FIRST_PORT, NUM_PORTS
from services.scheduler.kept_directories import KeptDirectories
from services.scheduler.launchers.base import Observation
from services.scheduler.shutdown import stop_live_runs
from tests.handlers.scheduler.world import World, make_submit, start
from tests.mounts import mounted

JOB = job_id_for("default", "r1")
OTHER = job_id_for("default", "r2")
POD = pod_id_for(JOB, 1, 0)
GANG = {"resources": {"devices": 4}}
AT_ONCE = {"retries": {"limit": 1, "backoff_seconds": 0}}
DEAD = Observation(Sight.DEAD)
ABSENT = Observation(Sight.ABSENT)


async def test_the_story_of_a_job_that_succeeds(world: World):
    await world.submit(make_submit(resources={"devices": 2}))
    await world.rounds()
    world.launcher.end(POD, result=Result(step=400, metrics={"accuracy": 0.98}))
    await world.rounds()

    sent = await world.emitted()
    assert [payload.kind.type for payload in sent] == [
        "job.queued",
        "allocation.granted",
        "run.starting",
        "run.started",
        "run.succeeded",
        "allocation.released",
        "job.succeeded",
    ]
    granted, released, succeeded = sent[1], sent[5], sent[6]
    assert granted.slots == released.slots
    assert granted.granted_at == released.granted_at <= released.released_at
    assert succeeded.result.metrics == {"accuracy": 0.98}
    assert succeeded.attempts == 1


async def test_a_gang_is_one_pod_per_node_and_starts_when_all_are_seen(world: World):
    second = pod_id_for(JOB, 1, 1)
    world.launcher.sights[second] = Observation(Sight.CREATED)

    await start(world, **GANG)

    first, last = world.launcher.specs[POD], world.launcher.specs[second]
    assert (first.first_rank, first.num_ranks, first.world_size) == (0, 2, 4)
    assert (last.first_rank, last.num_ranks, last.pod_index) == (2, 2, 1)
    assert (first.node_id, last.node_id) == ("n1", "n2")
    assert first.rendezvous_file == last.rendezvous_file
    assert (await world.job(JOB)).state is JobState.STARTING

    world.launcher.sights[second] = Observation(Sight.ALIVE)
    await world.rounds()
    assert await world.types() == ["run.started"]
    assert (await world.job(JOB)).state is JobState.RUNNING


async def test_a_repeated_exception_and_a_broken_program_are_not_tried_again(world: World):
    for request_id, kind, num_runs in (("repeats", "exception", 2), ("broken", "invalid", 1)):
        job_id = job_id_for("default", request_id)
        await start(world, request_id=request_id, retries={"limit": 9, "backoff_seconds": 0})
        failure = {"failure": {"kind": kind, "step": 7}, "detail": f"{kind}: it failed"}
        for attempt in range(1, num_runs + 1):
            world.launcher.end(pod_id_for(job_id, attempt, 0), "failed", **failure)
            await world.rounds()

        sent = await world.emitted()
        assert [payload.kind.type for payload in sent if "job." in payload.kind.type] == [
            *["job.retrying"] * (num_runs - 1),
            "job.failed",
        ]
        failed = next(payload for payload in sent if payload.kind.type == "run.failed")
        assert failed.detail == f"{kind}: it failed"
        assert sent[-1].detail.startswith(f"{kind}: it failed (not tried again: ")


async def test_a_failed_run_is_retried_with_a_higher_fence_until_no_retry_is_left(world: World):
    await start(world, **AT_ONCE)
    world.launcher.end(POD, "failed", last_log="boom")
    await world.rounds()

    sent = await world.emitted()
    assert [payload.kind.type for payload in sent] == [
        "run.failed",
        "allocation.released",
        "job.retrying",
        "allocation.granted",
        "run.starting",
        "run.started",
    ]
    assert (sent[0].exit_code, sent[0].rank, sent[0].last_log) == (1, 0, "boom")
    assert (sent[2].next_attempt, sent[2].retries_left) == (2, 0)
    assert sent[3].fence > sent[0].fence
    assert sent[3].granted_at >= sent[1].released_at

    world.launcher.end(pod_id_for(JOB, 2, 0), "failed", detail="rank 0 ended with code 1")
    await world.rounds()
    sent = await world.emitted()
    assert [payload.kind.type for payload in sent] == [
        "run.failed",
        "allocation.released",
        "job.failed",
    ]
    assert sent[2].detail == "rank 0 ended with code 1"
    assert sent[2].attempts == 2


async def test_a_job_that_backs_off_says_so_and_lets_others_pass(world: World):
    await start(world, **GANG, retries={"limit": 1, "backoff_seconds": 3600})
    await world.submit(make_submit("r2"))
    for index in (0, 1):
        world.launcher.end(pod_id_for(JOB, 1, index), "failed")
    await world.emitted()
    await world.rounds()

    sent = await world.emitted()
    (waiting,) = [payload for payload in sent if payload.kind.type == "job.waiting"]
    assert (waiting.job_id, waiting.reason) == (JOB, WaitingReason.BACKING_OFF)
    assert (await world.job(OTHER)).state is JobState.RUNNING


async def test_one_failed_pod_stops_the_gang_before_the_outcome(world: World):
    second = pod_id_for(JOB, 1, 1)
    await start(world, **GANG, **AT_ONCE)

    world.launcher.end(second, "failed")
    await world.rounds()
    assert world.launcher.notices[POD].reason == "gang"
    assert await world.types() == []

    world.launcher.end(POD, "interrupted")
    await world.rounds()
    failed = (await world.emitted())[0]
    assert (failed.kind.type, failed.rank) == ("run.failed", 2)


async def test_of_two_failures_in_one_round_the_earlier_one_is_the_cause(world: World):
    await start(world, **GANG)
    earlier = datetime.now(UTC) - timedelta(seconds=3)
    world.launcher.end(POD, "failed", last_log="connection closed by peer")
    world.launcher.end(pod_id_for(JOB, 1, 1), "failed", last_log="boom", ended_at=earlier)
    await world.rounds()

    failed = (await world.emitted())[0]
    assert (failed.kind.type, failed.rank, failed.last_log) == ("run.failed", 2, "boom")


async def test_a_pod_without_its_shim_is_lost_only_after_all_its_processes_are_gone(world: World):
    await start(world, **AT_ONCE)
    world.launcher.sights[POD] = DEAD
    world.launcher.unkillable = {POD}
    await world.rounds()
    assert world.launcher.killed
    assert await world.types() == []

    world.launcher.unkillable = set()
    await world.clock.advance(11)
    await world.rounds()
    sent = await world.types()
    assert sent[:3] == ["run.lost", "allocation.released", "job.retrying"]


async def test_other_kills_do_not_put_off_the_next_try_at_a_pod(world: World):
    await start(world, **AT_ONCE)
    world.launcher.sights[POD] = DEAD
    world.launcher.unkillable = {POD}
    await world.rounds()
    await world.clock.advance(8)
    await world.submit(make_submit("r2"))
    await world.rounds()
    world.launcher.sights[pod_id_for(OTHER, 1, 0)] = DEAD
    await world.rounds()
    assert world.launcher.killed == [POD, pod_id_for(OTHER, 1, 0)]

    await world.clock.advance(3)
    await world.rounds()
    assert world.launcher.killed[2:] == [POD]


async def test_slots_are_not_granted_while_processes_of_a_lost_pod_may_run(world: World):
    await start(world, **GANG)
    world.launcher.sights[POD] = DEAD
    world.launcher.unkillable = {POD}
    world.launcher.end(pod_id_for(JOB, 1, 1), "failed")
    await world.submit(make_submit("r2"))
    await world.rounds()

    assert (await world.job(OTHER)).state is JobState.QUEUED
    assert (await world.emitted())[-1].reason is WaitingReason.NO_FREE_DEVICES


async def test_an_interruption_that_the_platform_asked_for_uses_no_retry(world: World):
    await start(world, retries={"limit": 0})
    assert await stop_live_runs(world.database) == 1
    world.launcher.end(POD, "interrupted")
    world.restart()
    await world.rounds()

    sent = await world.emitted()
    assert [payload.kind.type for payload in sent][:3] == [
        "run.interrupted",
        "allocation.released",
        "job.retrying",
    ]
    assert (sent[2].backoff_seconds, sent[2].retries_left) == (0, 0)
    assert (await world.job(JOB)).state is JobState.RUNNING


async def test_a_stop_that_is_recorded_reaches_pods_that_still_run(world: World):
    await start(world)
    await stop_live_runs(world.database)
    await world.rounds()

    assert world.launcher.notices[POD].reason == "shutdown"
    assert await stop_live_runs(world.database) == 0


async def test_a_restarted_scheduler_gives_a_notice_again_and_enforces_its_deadline(world: World):
    await start(world)
    await world.cancel(JOB)
    await world.rounds()
    del world.launcher.notices[POD]
    world.restart()
    await world.rounds()
    assert world.launcher.notices[POD].reason == "cancel"

    await world.clock.advance(30 + 10 + 1)
    await world.rounds()
    assert world.launcher.killed == [POD]


async def test_no_two_live_runs_hold_one_port(world: World):
    for number in range(4):
        await world.submit(make_submit(f"r{number}"))
    await world.rounds()
    first = [spec.master_port for spec in world.launcher.specs.values()]
    assert len(set(first)) == 4
    assert all(FIRST_PORT <= port < FIRST_PORT + NUM_PORTS for port in first)

    async with world.database.transaction() as tx:
        with pytest.raises(asyncpg.UniqueViolationError, match="runs_port_held"):
            await tx.connection.execute("update runs set master_port = 20000")


async def test_of_many_runs_that_come_and_go_no_two_live_ones_share_a_port(world: World):
    nodes = [{"node_id": "n1", "slots": 64}, {"node_id": "n2", "slots": 64}]
    world = await World(world.database, world.launcher, nodes=nodes).register()
    await world.submit(*(make_submit(f"r{number}") for number in range(400)))
    random = Random(1)
    num_granted = 0
    while num_granted < 400:
        await world.rounds()
        live = [pod for pod, seen in world.launcher.sights.items() if seen.sight is Sight.ALIVE]
        ports = {world.launcher.specs[pod].master_port for pod in live}
        num_granted = len(world.launcher.specs)
        assert len(ports) == len(live) == min(128, 400 - num_granted + len(live))
        for pod in random.sample(live, len(live) // 2 + 1):
            world.launcher.end(pod)


async def test_a_port_at_which_something_listens_is_passed_over(world: World):
    world.launcher.busy_ports = {FIRST_PORT + 1, FIRST_PORT + 2}
    await start(world)
    assert world.launcher.specs[POD].master_port == FIRST_PORT + 3


async def test_a_job_waits_while_every_port_is_held(world: World, monkeypatch):
    monkeypatch.setattr(ports, "NUM_PORTS", 2)
    for number in range(3):
        await world.submit(make_submit(f"r{number}"))
    await world.rounds()
    assert len(world.launcher.specs) == 2

    world.launcher.end(POD)
    await world.rounds()
    assert len(world.launcher.specs) == 3


async def test_a_new_scheduler_adopts_what_runs(world: World):
    await start(world)
    world.restart()
    await world.rounds()
    assert world.launcher.launches == [POD]
    assert await world.types() == []

    world.launcher.end(POD)
    await world.rounds()
    assert await world.types() == ["run.succeeded", "allocation.released", "job.succeeded"]


async def test_a_grant_whose_launch_was_never_made_is_launched_by_the_next_one(world: World):
    await world.submit(make_submit())
    world.loop.wake()
    await world.loop.round(world.platform)
    assert world.launcher.launches == []

    world.restart()
    await world.rounds()
    assert world.launcher.launches == [POD]
    assert (await world.job(JOB)).num_runs == 1


async def test_a_launch_that_was_not_recorded_is_found(world: World):
    await world.submit(make_submit())
    world.loop.wake()
    await world.loop.round(world.platform)
    world.launcher.sights[POD] = Observation(Sight.ALIVE)

    world.restart()
    await world.rounds()
    assert world.launcher.launches == []
    assert (await world.job(JOB)).state is JobState.RUNNING


async def test_a_pod_that_never_appears_is_started_twice_and_then_lost(world: World):
    world.launcher.sights[POD] = Observation(Sight.CREATED)
    await start(world, retries={"limit": 0})
    await world.clock.advance(31)
    await world.rounds()
    assert world.launcher.launches == [POD, POD]
    await world.clock.advance(29)
    await world.rounds()
    assert world.launcher.killed == []

    await world.clock.advance(2)
    await world.rounds()
    assert world.launcher.killed == [POD]
    sent = await world.emitted()
    assert [payload.kind.type for payload in sent] == [
        "run.lost",
        "allocation.released",
        "job.failed",
    ]
    assert "never started" in sent[0].detail


async def test_a_cancel_before_the_launch_starts_nothing(world: World):
    await world.submit(make_submit())
    world.loop.wake()
    await world.loop.round(world.platform)
    await world.cancel(JOB)
    await world.emitted()
    world.restart()
    await world.rounds()

    assert world.launcher.launches == []
    assert await world.types() == ["run.cancelled", "allocation.released", "job.cancelled"]


async def test_a_cancelled_pod_that_ignores_the_notice_is_killed(world: World):
    await start(world)
    await world.cancel(JOB)
    await world.rounds()
    assert world.launcher.killed == []

    await world.clock.advance(30 + 10 + 1)
    await world.rounds()
    assert world.launcher.killed == [POD]
    assert (await world.job(JOB)).state is JobState.CANCELLED


async def test_why_a_job_waits_is_announced_once(world: World):
    await start(world, **GANG)
    await world.submit(make_submit("r2"), make_submit("r3"))
    await world.rounds()
    await world.rounds()

    waiting = [payload for payload in await world.emitted() if payload.kind.type == "job.waiting"]
    assert [(entry.job_id, entry.reason, entry.queue_position) for entry in waiting] == [
        (OTHER, WaitingReason.NO_FREE_DEVICES, 1),
        (job_id_for("default", "r3"), WaitingReason.BEHIND_EARLIER_SUBMISSION, 2),
    ]
    assert waiting[0].holders[0].job_id == JOB
    assert waiting[0].holders[0].num_slots == 4


async def test_the_database_refuses_a_slot_that_is_held(world: World):
    await start(world)
    async with world.database.transaction() as tx:
        with pytest.raises(asyncpg.UniqueViolationError, match="allocation_slots_held"):
            await tx.connection.execute(
                """insert into jobs (job_id, tenant_id, request_id, command_event_id, spec, pool,
                    devices, priority, state)
                values ('j', 'default', 'x', 'e', '{}', 'default', 1, 0, 'starting');
                insert into runs (run_id, job_id, attempt, fence, state, master_port, device_type,
                    granted_at) values ('r', 'j', 1, 1, 'starting', 1, 'cpu', now());
                insert into allocations (allocation_id, run_id, job_id, pool, device_type,
                    granted_at) values ('a', 'r', 'j', 'default', 'cpu', now());
                insert into allocation_slots (allocation_id, node_id, slot) values ('a', 'n1', 0)"""
            )


async def test_nodes_are_published_when_they_change(world: World):
    world.nodes.now = [Node("n1", "default", "cpu", 2), Node("n3", "other", "gpu", 8)]
    sent = await world.look_at_nodes()
    assert [(payload.kind.type, payload.node_id) for payload in sent] == [
        ("node.registered", "n3"),
        ("node.removed", "n2"),
    ]


async def run_to_its_end(world: World, request_id: str) -> None:
    await world.submit(make_submit(request_id))
    await world.rounds()
    world.launcher.end(pod_id_for(job_id_for("default", request_id), 1, 0))
    await world.rounds()


async def test_directories_of_old_jobs_are_removed_and_the_last_kept(world: World):
    for request_id in ("r1", "r2", "r3"):
        await run_to_its_end(world, request_id)
    for request_id in ("r4", "r5"):  # they never ran, so they leave no directories
        await world.submit(make_submit(request_id))
        await world.cancel(job_id_for("default", request_id))
    kept = KeptDirectories(world.launcher, max_jobs=1, max_bytes=10**9)

    await kept.remove_old(world.platform)
    await kept.remove_old(world.platform)

    assert sorted(world.launcher.removed) == sorted([JOB, OTHER])


async def test_kept_directories_are_bounded_together_and_the_oldest_go_first(world: World):
    jobs = [job_id_for("default", f"r{number}") for number in range(5)]
    for number, job_id in enumerate(jobs):
        await run_to_its_end(world, f"r{number}")
        world.launcher.sizes[job_id] = 400
    kept = KeptDirectories(world.launcher, max_jobs=50, max_bytes=1000)

    await kept.remove_old(world.platform)

    assert sorted(world.launcher.removed) == sorted(jobs[:3])
    assert instruments.KEPT_BYTES._value.get() == 800


async def test_a_directory_beyond_the_bound_takes_no_other_with_it(world: World):
    jobs = [job_id_for("default", f"r{number}") for number in range(3)]
    for number, job_id in enumerate(jobs):
        await run_to_its_end(world, f"r{number}")
        world.launcher.sizes[job_id] = 400
    world.launcher.sizes[jobs[1]] = 5000
    kept = KeptDirectories(world.launcher, max_jobs=50, max_bytes=1000)

    await kept.remove_old(world.platform)

    assert world.launcher.removed == [jobs[1]]


async def test_kept_directories_are_a_share_of_what_their_disk_has(world: World, tmp_path: Path):
    jobs = [job_id_for("default", f"r{number}") for number in range(5)]
    for number, job_id in enumerate(jobs):
        await run_to_its_end(world, f"r{number}")
        world.launcher.sizes[job_id] = 100_000
    with mounted(tmp_path / "pods", "size=1m"):
        kept = KeptDirectories(world.launcher, max_jobs=50, max_bytes=10**9, on=tmp_path / "pods")
        await kept.remove_old(world.platform)
    assert sorted(world.launcher.removed) == sorted(jobs[:2])


async def test_rows_of_runs_that_ended_long_ago_are_deleted_in_steps(world: World, monkeypatch):
    monkeypatch.setattr(retention, "BATCH", 2)
    for number in range(5):
        await world.submit(make_submit(f"r{number}"))
    await world.rounds()  # the fifth waits for one of the four slots
    for pod in list(world.launcher.specs):
        world.launcher.end(pod)
    await world.rounds()
    live = list(world.launcher.specs)[-1]
    async with world.database.transaction() as tx:
        await tx.connection.execute(
            "insert into sightings select pod_id, now() from pods; "
            "update runs set ended_at = ended_at - interval '31 days' where ended_at is not null"
        )

    await retention.prune(world.platform)

    for table in ("runs", "pods", "allocations", "sightings"):
        async with world.database.connection() as connection:
            assert await connection.fetchval(f"select count(*) from {table}") == 1, table
    world.launcher.end(live)
    await world.rounds()
    assert (await world.types())[-1] == "job.succeeded"


async def test_rows_of_runs_that_ended_lately_are_kept(world: World):
    await start(world)
    world.launcher.end(POD)
    await world.rounds()
    await retention.prune(world.platform)
    async with world.database.connection() as connection:
        assert await connection.fetchval("select count(*) from runs") == 1


async def test_all_that_may_go_goes_and_what_cannot_is_tried_again(world: World, monkeypatch):
    monkeypatch.setattr("services.scheduler.kept_directories.BATCH", 2)
    jobs = [job_id_for("default", f"r{number}") for number in range(6)]
    for number in range(6):
        await run_to_its_end(world, f"r{number}")
    kept = KeptDirectories(world.launcher, max_jobs=0, max_bytes=0)
    world.launcher.unremovable = set(jobs[2:5])

    await kept.remove_old(world.platform)
    assert sorted(world.launcher.removed) == sorted({*jobs} - world.launcher.unremovable)

    world.launcher.unremovable = set()
    await kept.remove_old(world.platform)
    assert sorted(world.launcher.removed) == sorted(jobs)
