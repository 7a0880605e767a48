"""A starting run shows what keeps its pods from running; that ends, and costs nobody."""

from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import REGISTRY

from drivetrain_schemas.ids import job_id_for, pod_id_for
from drivetrain_schemas.jobs import JobState, WaitingReason
from drivetrain_schemas.runs import WaitCause
from services.scheduler.core.pods import Sight
from services.scheduler.core.waits import Wait
from services.scheduler.launchers.base import LauncherUnavailable, Observation
from tests.handlers.scheduler.world import World, make_submit

JOB = job_id_for("default", "r1")
POD, SECOND = (pod_id_for(JOB, 1, index) for index in (0, 1))
NO_RETRIES = {"retries": {"limit": 0}}
QUOTA = Wait(WaitCause.REFUSED, "quota few", "the cluster refuses the pod (quota few): limits")
GATED = Wait(
    WaitCause.GATED, "team/budget", "the pod is held back by scheduling gates: team/budget"
)


def sample(name: str, **labels: str) -> float:
    value = REGISTRY.get_sample_value(f"drivetrain_scheduler_{name}", labels)
    assert value is not None
    return value


async def waits_told(world: World) -> Sequence[tuple[str | None, str, str]]:
    sent = [each for each in await world.emitted() if each.kind.type == "run.waiting"]
    return [(each.cause, each.by, each.detail) for each in sent]


async def pass_time(world: World, seconds: float) -> list[Any]:
    """Rounds all the while, and what they sent."""
    sent = []
    for _ in range(int(seconds / 3)):
        await world.clock.advance(3)
        await world.rounds()
        sent += await world.emitted()
    return sent


async def test_who_refuses_a_pod_is_told_once_until_it_starts(world: World) -> None:
    world.launcher.blocked[POD] = QUOTA
    failures = sample("launch_failures_total")
    await world.submit(make_submit(**NO_RETRIES))
    await world.rounds()
    assert await waits_told(world) == [("refused", "quota few", QUOTA.detail)]
    await world.rounds()
    assert sample("waiting_runs", cause="refused") == 1
    sent = await pass_time(world, 60)
    assert sent == []
    world.restart()
    assert await pass_time(world, 30) == []
    assert sample("launcher_away") == 1  # nobody else may have noticed
    assert sample("launch_failures_total") > failures + 10

    world.launcher.blocked.clear()
    sent = await pass_time(world, 3)
    assert [each.kind.type for each in sent] == ["run.started"]
    assert sample("launcher_away") == 0
    assert sample("waiting_runs", cause="refused") == 0


async def test_a_launch_without_an_answer_is_told_too(world: World) -> None:
    async def unanswered(spec: Any) -> None:
        raise LauncherUnavailable("connection refused")

    world.launcher.launch = unanswered
    await world.submit(make_submit(**NO_RETRIES))
    await world.rounds()
    assert await waits_told(world) == [
        ("no_answer", "", "no pod can be created: connection refused")
    ]
    assert sample("launcher_away") == 1


async def test_a_refusal_that_stays_releases_the_slots_and_the_job_goes_on_once_it_is_mended(
    world: World,
) -> None:
    """No retry is used, and nothing of what the other pod of the gang did is paid for."""
    world.launcher.blocked[SECOND] = QUOTA
    await world.submit(make_submit(resources={"devices": 4}, **NO_RETRIES))
    await world.rounds()
    await world.emitted()
    sent = await pass_time(world, 120)
    assert sent == []
    assert world.launcher.killed == []
    await pass_time(world, 6)
    assert world.launcher.killed == [SECOND]
    world.launcher.end(POD, "interrupted")
    await world.rounds()

    sent = {each.kind.type: each for each in await world.emitted()}
    assert sent["run.interrupted"].detail == QUOTA.detail
    released = sent["allocation.released"]
    assert released.paid_ends_at == released.granted_at
    happened = f"attempt 1 could not be started: {QUOTA.detail}"
    retrying, waiting = sent["job.retrying"], sent["job.waiting"]
    assert (retrying.detail, retrying.backoff_seconds) == (happened, 30)
    assert waiting.reason is WaitingReason.BACKING_OFF
    assert waiting.detail.startswith(happened)
    assert waiting.not_before_at == retrying.not_before_at

    async with world.database.transaction() as tx:
        await tx.connection.execute("update jobs set not_before_at = now()")
    await world.rounds()
    assert (await world.job(JOB)).state is JobState.RUNNING


async def test_the_time_in_which_nothing_answers_does_not_count(world: World) -> None:
    world.launcher.blocked[POD] = QUOTA
    await world.submit(make_submit(**NO_RETRIES))
    await pass_time(world, 90)
    world.launcher.is_away = True
    await world.rounds()
    await world.clock.advance(600)
    world.launcher.is_away = False
    sent = await pass_time(world, 90)
    assert not any(each.kind.type == "run.interrupted" for each in sent)
    assert world.launcher.killed == []


async def test_a_launcher_that_is_away_is_told_on_what_is_to_start(world: World) -> None:
    """Not on what runs: that goes on. A cancel meanwhile is done afterwards."""
    other, third = (job_id_for("default", name) for name in ("other", "third"))
    await world.submit(make_submit("other"))
    await world.rounds()
    world.launcher.sights[POD] = Observation(Sight.CREATED)
    await world.submit(make_submit(**NO_RETRIES), make_submit("third"))
    await world.rounds()
    await world.emitted()
    world.launcher.is_away = True
    await world.cancel(other)
    await world.rounds()
    (told,) = [each for each in await world.emitted() if each.kind.type == "run.waiting"]
    assert (told.job_id, told.cause) == (JOB, "no_answer")
    assert told.detail == "pods cannot be observed: connection refused"
    await world.cancel(third)
    for _ in range(3):
        await world.rounds()
        await world.clock.advance(60)
    assert await world.types() == ["job.cancelling"]

    world.launcher.is_away = False
    await world.rounds()
    assert await waits_told(world) == [(None, "", "")]
    assert set(world.launcher.notices) == {pod_id_for(job, 1, 0) for job in (other, third)}


async def test_what_a_created_pod_waits_for_is_told_and_that_it_is_over(world: World) -> None:
    world.launcher.sights[POD] = Observation(Sight.CREATED, wait=GATED)
    await world.submit(make_submit(**NO_RETRIES))
    await world.rounds()
    assert await waits_told(world) == [("gated", "team/budget", GATED.detail)]
    world.launcher.sights[POD] = Observation(Sight.CREATED)
    await world.rounds()
    assert await waits_told(world) == [(None, "", "")]
    world.launcher.sights[POD] = Observation(Sight.ALIVE)
    await world.rounds()
    assert await world.types() == ["run.started"]


async def test_words_that_change_with_every_look_are_told_now_and_then(world: World) -> None:
    await world.submit(make_submit(**NO_RETRIES))
    told = []
    for number in range(30):
        wait = Wait(WaitCause.PULL_FAILED, "image", f"request {number} failed")
        world.launcher.sights[POD] = Observation(Sight.CREATED, wait=wait)
        await world.clock.advance(0.9)
        await world.rounds()
        told += await waits_told(world)
    assert 2 <= len(told) <= 4


async def test_a_run_that_is_cancelled_while_it_waits_tells_nothing_more(world: World) -> None:
    world.launcher.blocked[POD] = QUOTA
    await world.submit(make_submit(**NO_RETRIES))
    await world.rounds()
    await world.emitted()
    await world.cancel(JOB)
    await world.rounds()
    types = await world.types()
    assert "run.waiting" not in types
    assert types[-1] == "job.cancelled"


@pytest.mark.parametrize("cause", [WaitCause.GATED, WaitCause.PULLING])
async def test_a_pod_that_never_starts_ends_with_what_it_waited_for(
    world: World, cause: WaitCause
) -> None:
    wait = Wait(cause, "n1", "node n1 pulls the image")
    world.launcher.sights[POD] = Observation(Sight.CREATED, wait=wait)
    await world.submit(make_submit(**NO_RETRIES))
    sent = {each.kind.type: each for each in await pass_time(world, 90)}
    kind = "run.interrupted" if cause is WaitCause.GATED else "run.failed"
    assert sent[kind].detail == "pod 0 did not start: node n1 pulls the image"
