"""The scheduler keeps its promises through crashes, and this test would see it if it did not."""

import os

import pytest

from services.scheduler import handlers, store_runs
from services.scheduler.core.pods import PodState, PodView, Sight
from tests.conftest import OpenDatabase
from tests.simulation.scheduler.chaos import Chaos, verdict

NUM_SEEDS = int(os.environ.get("SIMULATION_SEEDS", "6"))


@pytest.mark.parametrize("seed", range(NUM_SEEDS))
async def test_every_promise_is_kept(database: OpenDatabase, seed: int):
    chaos = Chaos(await database("scheduler"), seed)

    await chaos.run()

    assert await verdict(chaos) == [], f"seed {seed}"
    jobs = sum(event.payload.kind.type == "job.submit" for event in chaos.commands)
    assert jobs > 0


def plant_release_without_proof(monkeypatch):
    """A dead shim is taken for a pod that is gone."""
    gone = (PodState.ENDED, PodState.LOST)
    claim = property(lambda pod: pod.state in gone or pod.sight in (Sight.ENDED, Sight.DEAD))
    monkeypatch.setattr(PodView, "is_finished", claim)


def plant_fence_that_stands_still(monkeypatch):
    async def next_fence(connection):
        return 1

    monkeypatch.setattr(store_runs, "next_fence", next_fence)


def plant_cancel_that_forgets_the_run(monkeypatch):
    """A running job is called cancelled before its pods are gone."""
    original = handlers.transitions.stop

    async def stop(tx, run, reason):
        await original(tx, run, reason)
        job = await handlers.store.job(tx.connection, run.job_id)
        await handlers.transitions.cancel_queued(tx, job)

    monkeypatch.setattr(handlers.transitions, "stop", stop)


PLANTED = [
    plant_release_without_proof,
    plant_fence_that_stands_still,
    plant_cancel_that_forgets_the_run,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
async def test_a_planted_bug_is_found(database: OpenDatabase, monkeypatch, plant):
    plant(monkeypatch)
    for seed in range(20):
        chaos = Chaos(await database("scheduler"), seed)
        try:
            await chaos.run()
        except AssertionError:
            return  # one of the scheduler's own checks has found it
        if await verdict(chaos):
            return
    raise AssertionError("the planted bug was not found in 20 seeds")
