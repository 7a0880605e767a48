"""The contract of a launcher: what the scheduler relies on, whatever runs the pods."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from drivetrain_schemas.pods import PodSpec, StopNotice
from drivetrain_schemas.runs import WaitCause
from services.scheduler.core.pods import Sight
from services.scheduler.launchers.base import LaunchBlocked, Launcher, Observation
from tests.contract.launchers import (
    FAILS,
    IGNORES_THE_NOTICE,
    RIGS,
    SLEEPS,
    STOPS,
    SUCCEEDS,
    Rig,
    ref_of,
)

SECONDS = 60
# A shim that is killed on a busy machine at its deadline reports nothing.
CANCEL = StopNotice(reason="cancel", deadline_seconds=40)


@pytest_asyncio.fixture(params=RIGS)
async def rig(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Rig]:
    made = RIGS[request.param](tmp_path)
    yield made
    await made.close()


async def sight(launcher: Launcher, spec: PodSpec) -> Sight:
    return (await launcher.observe([ref_of(spec)]))[spec.pod_id].sight


async def seen(launcher: Launcher, spec: PodSpec, *sights: Sight) -> Observation:
    """Wait until the pod looks like this."""
    async with asyncio.timeout(SECONDS):
        while True:
            found = (await launcher.observe([ref_of(spec)]))[spec.pod_id]
            if found.sight in sights:
                return found
            await asyncio.sleep(0.02)


async def ended_after_notice(launcher: Launcher, spec: PodSpec) -> Observation:
    """The end of a pod that was told to stop, found as the scheduler finds it.

    A pod whose object goes away together with its end looks dead, until the kill that the
    scheduler answers with has read the end where the pod left it.
    """
    found = await seen(launcher, spec, Sight.ENDED, Sight.DEAD)
    if found.sight is Sight.DEAD:
        await killed(launcher, spec)
        found = (await launcher.observe([ref_of(spec)]))[spec.pod_id]
    assert found.sight is Sight.ENDED
    return found


async def killed(launcher: Launcher, *specs: PodSpec) -> None:
    """Kill these pods, as often as it takes."""
    left = {spec.pod_id: ref_of(spec) for spec in specs}
    async with asyncio.timeout(SECONDS):
        while left:
            gone = set(await launcher.kill(list(left.values())))
            assert gone <= left.keys()
            left = {pod_id: ref for pod_id, ref in left.items() if pod_id not in gone}


async def test_each_pod_that_is_asked_for_is_observed(rig: Rig) -> None:
    specs = [rig.spec(SLEEPS, index=index) for index in (0, 1)]
    await rig.launcher.launch(specs[0])
    found = await rig.launcher.observe([ref_of(spec) for spec in specs])
    assert found.keys() == {spec.pod_id for spec in specs}
    assert found[specs[0].pod_id].sight is not Sight.ABSENT
    assert found[specs[1].pod_id] == Observation(Sight.ABSENT)
    assert await rig.launcher.observe([]) == {}


@pytest.mark.parametrize(
    ("command", "outcome", "codes", "failed"),
    [(SUCCEEDS, "succeeded", [0, 0], None), (FAILS, "failed", [1, 1], 0)],
    ids=["succeeds", "fails"],
)
async def test_a_pod_runs_to_its_end_and_the_end_stays(
    rig: Rig, command: tuple[str, ...], outcome: str, codes: list[int], failed: int | None
) -> None:
    spec = rig.spec(command, ranks=2)
    await rig.launcher.launch(spec)
    ended = await seen(rig.launcher, spec, Sight.ENDED)
    assert ended.exit is not None
    assert ended.exit.outcome == outcome
    assert [rank.exit_code for rank in ended.exit.ranks] == codes
    assert ended.exit.first_failed_rank == failed
    assert not ended.is_running
    assert await seen(rig.restarted(), spec, Sight.ENDED) == ended


async def test_launching_a_pod_many_times_starts_it_once(rig: Rig) -> None:
    spec = rig.spec(rig.counted())
    other = rig.restarted()
    await asyncio.gather(*(each.launch(spec) for each in (rig.launcher, rig.launcher, other)))
    await seen(rig.launcher, spec, Sight.ALIVE)
    await other.launch(spec)
    async with asyncio.timeout(SECONDS):
        while rig.num_starts() == 0:
            await asyncio.sleep(0.02)
    await killed(other, spec)
    assert rig.num_starts() == 1


async def test_a_pod_that_has_ended_is_not_started_again(rig: Rig) -> None:
    spec = rig.spec(SUCCEEDS)
    await rig.launcher.launch(spec)
    ended = await seen(rig.launcher, spec, Sight.ENDED)
    await rig.restarted().launch(spec)
    assert (await rig.launcher.observe([ref_of(spec)]))[spec.pod_id] == ended


async def test_a_notice_reaches_the_pod_with_its_reason_and_its_deadline(rig: Rig) -> None:
    spec = rig.spec(STOPS)
    await rig.launcher.launch(spec)
    await seen(rig.launcher, spec, Sight.ALIVE)
    for _ in range(2):
        await rig.launcher.notify(ref_of(spec), CANCEL)
    assert rig.notice(ref_of(spec)) == CANCEL
    ended = await ended_after_notice(rig.launcher, spec)
    assert ended.exit is not None
    assert ended.exit.outcome == "interrupted"
    assert ended.reason is None


async def test_what_ignores_its_notice_is_killed(rig: Rig) -> None:
    spec = rig.spec(IGNORES_THE_NOTICE, ranks=2)
    await rig.launcher.launch(spec)
    await seen(rig.launcher, spec, Sight.ALIVE)
    await rig.launcher.notify(ref_of(spec), CANCEL)
    await killed(rig.launcher, spec)
    found = (await rig.launcher.observe([ref_of(spec)]))[spec.pod_id]
    assert not found.is_running
    assert found.sight is not Sight.CREATED


async def test_only_the_pods_that_are_named_are_killed(rig: Rig) -> None:
    specs = [rig.spec(SLEEPS, index=index) for index in (0, 1, 2)]
    for spec in specs:
        await rig.launcher.launch(spec)
        await seen(rig.launcher, spec, Sight.ALIVE)
    await killed(rig.launcher, *specs[:2])
    assert await sight(rig.launcher, specs[2]) is Sight.ALIVE


async def test_a_pod_that_never_was_is_gone(rig: Rig) -> None:
    await killed(rig.launcher, rig.spec(SLEEPS))


async def test_a_kill_that_comes_too_late_leaves_the_end_as_it_was(rig: Rig) -> None:
    spec = rig.spec(SUCCEEDS)
    await rig.launcher.launch(spec)
    ended = await seen(rig.launcher, spec, Sight.ENDED)
    await killed(rig.launcher, spec)
    assert (await rig.launcher.observe([ref_of(spec)]))[spec.pod_id] == ended


async def test_another_launcher_adopts_what_runs(rig: Rig) -> None:
    spec = rig.spec(STOPS)
    await rig.launcher.launch(spec)
    await seen(rig.launcher, spec, Sight.ALIVE)
    other = rig.restarted()
    await seen(other, spec, Sight.ALIVE)
    await other.notify(ref_of(spec), CANCEL)
    ended = await ended_after_notice(other, spec)
    assert ended.exit is not None
    assert ended.exit.outcome == "interrupted"


async def test_an_end_wakes_who_watches(rig: Rig) -> None:
    spec = rig.spec(STOPS)
    woken = asyncio.Event()
    watching = asyncio.create_task(rig.launcher.watch(woken.set))
    try:
        await asyncio.sleep(0)
        await rig.launcher.launch(spec)
        await seen(rig.launcher, spec, Sight.ALIVE)
        woken.clear()
        await rig.launcher.notify(ref_of(spec), CANCEL)
        await asyncio.wait_for(woken.wait(), SECONDS)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)


async def test_what_a_finished_job_left_is_removed(rig: Rig) -> None:
    spec = rig.spec(SUCCEEDS)
    await rig.launcher.launch(spec)
    await seen(rig.launcher, spec, Sight.ENDED)
    for _ in range(2):
        await rig.launcher.remove(spec.job_id)
    assert await rig.launcher.size_bytes(spec.job_id) == 0
    assert await sight(rig.launcher, spec) is Sight.ABSENT


async def test_who_refuses_a_pod_is_told_and_the_pod_starts_once_that_is_mended(rig: Rig) -> None:
    """Until then it is not there, and one that is given up is proven never to have been."""
    spec, given_up = rig.spec(SLEEPS), rig.spec(SLEEPS, index=1)
    await rig.launcher.observe([])
    rig.refuse()
    try:
        for each in (spec, spec, given_up):
            with pytest.raises(LaunchBlocked) as refused:
                await rig.launcher.launch(each)
            wait = refused.value.wait
            assert wait.cause is WaitCause.REFUSED
            assert wait.by
            assert wait.detail
        assert await sight(rig.launcher, spec) is Sight.ABSENT
        await killed(rig.launcher, given_up)
    finally:
        rig.mend()
    await rig.launcher.launch(spec)
    await seen(rig.launcher, spec, Sight.ALIVE)


async def test_each_attempt_has_a_rendezvous_of_its_own(rig: Rig) -> None:
    spec = rig.spec(SLEEPS)
    first = rig.launcher.rendezvous(spec.job_id, 1)
    assert first == rig.restarted().rendezvous(spec.job_id, 1)
    assert first != rig.launcher.rendezvous(spec.job_id, 2)


async def test_free_ports_are_some_of_those_that_are_asked_for(rig: Rig) -> None:
    ports = [20_001, 20_002, 20_003]
    assert set(await rig.launcher.free_ports(ports)) <= set(ports)
    assert not await rig.launcher.free_ports([])
