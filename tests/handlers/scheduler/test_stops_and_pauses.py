"""Jobs that are stopped early, paused and resumed."""

import pytest

from drivetrain_schemas.ids import job_id_for, pod_id_for
from drivetrain_schemas.jobs import (
    JobCancel,
    JobPause,
    JobResume,
    JobState,
    JobStop,
    RejectionReason,
    Result,
    TrialOf,
)
from services.scheduler.core.pods import EndKind, EndReason, Sight
from services.scheduler.launchers.base import Observation
from tests.events import handle, make_event
from tests.handlers.scheduler.world import World, make_submit, start

JOB = job_id_for("default", "r1")
POD = pod_id_for(JOB, 1, 0)
TRIAL = TrialOf(study_id="study_yewnxgxh4pgcqhxf3jqddi4pbk", number=7, rungs=(10, 30))
RESULT = Result(step=30, metrics={"loss": 0.5})


async def send(world: World, payload, tenant_id: str = "default") -> list:
    await world.emitted()
    event = make_event(payload, tenant_id=tenant_id)
    return await handle(
        world.database, world.commands.handlers, event, refusals=world.commands.refusals
    )


def types(sent: list) -> list[str]:
    return [payload.kind.type for payload in sent]


async def rounds(world: World) -> list:
    await world.emitted()
    await world.rounds()
    return [each for each in await world.emitted() if each.kind.type != "job.waiting"]


async def test_a_running_job_saves_a_last_checkpoint_and_is_stopped(world: World):
    await world.submit(make_submit().model_copy(update={"trial": TRIAL}))
    await world.rounds()

    (stopping,) = await send(world, JobStop(job_id=JOB, reason="worse than 7 of 9"))
    assert (stopping.kind.type, stopping.reason) == ("job.stopping", "worse than 7 of 9")
    assert await send(world, JobStop(job_id=JOB, reason="again")) == []
    await world.rounds()
    notice = world.launcher.notices[POD]
    assert (notice.reason, notice.checkpoint) == ("stop", True)
    assert notice.deadline_seconds == world.settings.cancel_notice_seconds

    world.launcher.end(POD, "interrupted", result=RESULT)
    sent = await rounds(world)
    assert types(sent) == ["run.stopped", "allocation.released", "job.stopped"]
    assert sent[2].reason == "worse than 7 of 9"
    assert sent[2].result == RESULT
    assert sent[2].trial == TRIAL
    assert (await world.job(JOB)).state is JobState.STOPPED


async def test_where_nothing_is_to_be_saved_the_deadline_is_short(world: World):
    await start(world)
    await send(world, JobStop(job_id=JOB, checkpoint=False))
    await world.rounds()

    notice = world.launcher.notices[POD]
    assert (notice.reason, notice.checkpoint) == ("stop", False)
    assert notice.deadline_seconds == world.settings.gang_notice_seconds
    await world.clock.advance(world.settings.gang_notice_seconds + 11)
    assert types(await rounds(world)) == ["run.stopped", "allocation.released", "job.stopped"]
    assert world.launcher.killed == [POD]


async def test_a_job_that_succeeds_meanwhile_has_succeeded(world: World):
    await start(world)
    await send(world, JobStop(job_id=JOB))
    world.launcher.end(POD, "succeeded")
    assert types(await rounds(world))[-1] == "job.succeeded"


@pytest.mark.parametrize("end", ["failed", "killed"])
async def test_one_that_crashes_meanwhile_is_stopped_and_not_tried_again(world: World, end: str):
    await start(world, retries={"limit": 3, "backoff_seconds": 0})
    await send(world, JobStop(job_id=JOB, reason="poor"))
    if end == "failed":
        world.launcher.end(POD, "failed")
    else:
        world.launcher.sights[POD] = Observation(Sight.DEAD)
    assert types(await rounds(world)) == ["run.stopped", "allocation.released", "job.stopped"]
    assert await rounds(world) == []


async def test_a_waiting_job_is_stopped_at_once(world: World):
    await world.submit(make_submit())
    assert types(await send(world, JobStop(job_id=JOB))) == ["job.stopping", "job.stopped"]
    await world.rounds()
    assert world.launcher.launches == []


async def test_a_job_between_two_tries_is_stopped_at_once(world: World):
    await start(world, retries={"limit": 3, "backoff_seconds": 100})
    world.launcher.end(POD, "failed", result=RESULT)
    await rounds(world)
    sent = await send(world, JobStop(job_id=JOB))
    assert types(sent) == ["job.stopping", "job.stopped"]
    assert sent[1].result == RESULT
    await world.clock.advance(200)
    assert await rounds(world) == []


async def test_a_paused_job_holds_nothing_and_resumes_with_its_next_attempt(world: World):
    await world.submit(make_submit(resources={"devices": 2}))
    await world.submit(make_submit("other", resources={"devices": 4}))
    await world.rounds()
    assert types(await send(world, JobPause(job_id=JOB, reason="later"))) == ["job.pausing"]
    assert await send(world, JobPause(job_id=JOB)) == []
    await world.rounds()
    notice = world.launcher.notices[POD]
    assert (notice.reason, notice.checkpoint) == ("pause", True)

    world.launcher.end(POD, "interrupted", result=RESULT)
    sent = await rounds(world)
    # The slots go to the job that waited for them, in the same round.
    assert types(sent)[:4] == [
        "run.interrupted",
        "allocation.released",
        "job.paused",
        "allocation.granted",
    ]
    paused = sent[2]
    assert (paused.reason, paused.attempt, paused.step) == ("later", 1, 30)
    job = await world.job(JOB)
    assert (job.state, job.wish) == (JobState.PAUSED, None)
    assert job.tries.num_failures == job.tries.num_self_interruptions == 0
    assert job.tries.num_disruptions == 0
    assert await send(world, JobPause(job_id=JOB)) == []

    (resumed,) = await send(world, JobResume(job_id=JOB))
    assert (resumed.kind.type, resumed.queued_at is not None) == ("job.resumed", True)
    assert await send(world, JobResume(job_id=JOB)) == []
    await world.rounds()
    for index in (0, 1):
        world.launcher.end(pod_id_for(job_id_for("default", "other"), 1, index))
    assert "allocation.granted" in types(await rounds(world))
    assert world.launcher.launches[-1] == pod_id_for(JOB, 2, 0)


async def test_a_resumed_job_keeps_its_place_in_the_queue(world: World):
    await world.submit(make_submit("busy", resources={"devices": 4}))
    await world.rounds()
    await world.submit(make_submit("r1", resources={"devices": 4}))
    await world.submit(make_submit("later", resources={"devices": 4}))
    await world.rounds()
    sent = await send(world, JobPause(job_id=JOB))
    assert types(sent) == ["job.pausing", "job.paused"]
    assert (sent[1].attempt, sent[1].step) == (0, None)
    await world.rounds()
    await send(world, JobResume(job_id=JOB))
    await world.rounds()
    waiting = [each for each in await world.emitted() if each.kind.type == "job.waiting"]
    assert [each.queue_position for each in waiting if each.job_id == JOB] == [1]


async def test_a_paused_job_survives_a_restart_and_gets_nothing(world: World):
    await start(world)
    await send(world, JobPause(job_id=JOB))
    world.launcher.end(POD, "interrupted")
    await rounds(world)
    world.restart()
    assert await rounds(world) == []
    await send(world, JobResume(job_id=JOB))
    assert types(await rounds(world))[:2] == ["allocation.granted", "run.starting"]


async def test_a_pause_under_way_can_be_withdrawn(world: World):
    await start(world)
    await send(world, JobPause(job_id=JOB))
    (resumed,) = await send(world, JobResume(job_id=JOB))
    assert resumed.queued_at is None
    world.launcher.end(POD, "interrupted")
    assert types(await rounds(world))[:4] == [
        "run.interrupted",
        "allocation.released",
        "job.retrying",
        "allocation.granted",
    ]


async def test_a_run_that_fails_while_it_is_paused_uses_a_retry_and_the_job_is_paused(world: World):
    await start(world, retries={"limit": 1, "backoff_seconds": 0})
    await send(world, JobPause(job_id=JOB))
    world.launcher.end(POD, "failed")
    assert types(await rounds(world))[-1] == "job.paused"
    assert (await world.job(JOB)).tries.num_left == 0


async def test_a_run_that_was_not_yet_started_is_paused_without_a_failure(world: World):
    await world.submit(make_submit())
    world.launcher.sights[POD] = Observation(Sight.CREATED)
    await world.rounds()
    await send(world, JobPause(job_id=JOB))
    assert types(await rounds(world))[-1] == "job.paused"
    assert (await world.job(JOB)).tries.num_failures == 0


async def test_an_eviction_during_a_pause_is_a_pause(world: World):
    await start(world)
    await send(world, JobPause(job_id=JOB))
    evicted = EndReason(EndKind.DISRUPTED, "the node evicted the pod")
    world.launcher.sights[POD] = Observation(Sight.DEAD, reason=evicted)
    assert types(await rounds(world))[-1] == "job.paused"


@pytest.mark.parametrize(
    ("payload", "last"),
    [(JobStop(job_id=JOB), "job.stopped"), (JobCancel(job_id=JOB), "job.cancelled")],
)
async def test_a_paused_job_can_be_stopped_and_cancelled(world: World, payload, last: str):
    await start(world)
    await send(world, JobPause(job_id=JOB))
    world.launcher.end(POD, "interrupted", result=RESULT)
    await rounds(world)
    sent = await send(world, payload)
    assert sent[-1].kind.type == last
    if last == "job.stopped":
        assert sent[-1].result == RESULT
    (refused,) = await send(world, JobResume(job_id=JOB))
    assert refused.reason is RejectionReason.ALREADY_FINISHED


@pytest.mark.parametrize(
    ("payload", "last"),
    [(JobStop(job_id=JOB), "job.stopped"), (JobCancel(job_id=JOB), "job.cancelled")],
)
async def test_an_end_outranks_a_pause_under_way(world: World, payload, last: str):
    await start(world)
    await send(world, JobPause(job_id=JOB))
    await world.rounds()
    await send(world, payload)
    (refused,) = await send(world, JobPause(job_id=JOB))
    assert refused.reason is RejectionReason.ALREADY_FINISHED
    world.launcher.end(POD, "interrupted")
    assert types(await rounds(world))[-1] == last


@pytest.mark.parametrize("kind", [JobStop, JobPause, JobResume])
async def test_another_tenants_job_is_unknown(world: World, kind):
    await start(world)
    (refused,) = await send(world, kind(job_id=JOB), tenant_id="stranger")
    assert refused.reason is RejectionReason.NO_SUCH_JOB
    assert (await world.job(JOB)).wish is None


async def test_commands_that_come_before_their_job_are_applied_in_order(world: World):
    for payload in (JobPause(job_id=JOB), JobResume(job_id=JOB), JobStop(job_id=JOB, reason="x")):
        assert await send(world, payload) == []
    sent = await world.submit(make_submit())
    assert types(sent) == [
        "job.queued",
        "job.pausing",
        "job.paused",
        "job.resumed",
        "job.stopping",
        "job.stopped",
    ]
    assert sent[-1].reason == "x"
