"""The scheduler keeps its promises through crashes, and this test would see it if it did not."""

import os

import asyncpg
import pytest

from drivetrain_schemas.jobs import JobState
from services.scheduler import endings, loop, store, store_runs, transitions
from services.scheduler.core.pods import PodState, PodView, Sight
from services.scheduler.state import refresh
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
    async def next_fences(connection, number):
        return [1] * number

    monkeypatch.setattr(store_runs, "next_fences", next_fences)


def plant_cancel_that_forgets_the_run(monkeypatch):
    """A running job is called cancelled before its pods are gone."""
    original = transitions.stop

    async def stop(tx, run, reason):
        await original(tx, run, reason)
        job = await store.job(tx.connection, run.job_id)
        await endings.end_without_run(tx, job, JobState.CANCELLED)

    monkeypatch.setattr(transitions, "stop", stop)


def plant_memory_ahead_of_the_commit(monkeypatch):
    """What a transaction read is kept, though it failed."""
    last = []
    original = loop.Loop._apply

    async def refresh_and_keep(connection, state, touched=()):
        last[:] = [await refresh(connection, state, touched)]
        return last[0]

    async def apply(self, platform, seen):
        try:
            return await original(self, platform, seen)
        except Exception:
            self.state = last[0] if last else None
            raise

    monkeypatch.setattr(loop, "refresh", refresh_and_keep)
    monkeypatch.setattr(loop.Loop, "_apply", apply)


def plant_memory_without_its_own_changes(monkeypatch):
    """The loop forgets which pods and allocations it changed itself."""

    async def refresh_changed(connection, state, touched=()):
        return await refresh(connection, state)

    monkeypatch.setattr(loop, "refresh", refresh_changed)


def plant_memory_without_the_changes_of_handlers(monkeypatch):
    """What others commit is read at a resync only."""

    async def jobs_changed(connection, after):
        return []

    monkeypatch.setattr(store, "jobs_changed", jobs_changed)


PLANTED = [
    plant_release_without_proof,
    plant_fence_that_stands_still,
    plant_cancel_that_forgets_the_run,
    pytest.param(plant_memory_ahead_of_the_commit, marks=pytest.mark.heavy),
    plant_memory_without_its_own_changes,
    plant_memory_without_the_changes_of_handlers,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
async def test_a_planted_bug_is_found(database: OpenDatabase, monkeypatch, plant):
    plant(monkeypatch)
    for seed in range(20):
        chaos = Chaos(await database("scheduler"), seed)
        try:
            await chaos.run()
        except (AssertionError, asyncpg.UniqueViolationError):
            return  # one of the scheduler's own checks, or a constraint, has found it
        if await verdict(chaos):
            return
    raise AssertionError("the planted bug was not found in 20 seeds")
