"""An uninterrupted job to compare with, and the checks after every failure."""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.faults import evidence
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob


@dataclass(frozen=True, slots=True)
class Reference:
    """The results of a job without failures."""

    losses: dict[int, float]
    weights: dict[str, bytes]


Submit = Callable[..., TrainingJob]
CheckAll = Callable[..., None]


@pytest.fixture(scope="session")
def reference(platform: StandalonePlatform) -> Reference:
    job = TrainingJob.submit(platform, "undisturbed")
    assert job.wait_final()["state"] == "succeeded"
    return Reference(evidence.check_losses(job, None), evidence.final_weights(job))


@pytest.fixture
def submit(platform: StandalonePlatform, reference: Reference) -> Submit:
    """Submit a job of the common spec under a fresh request id."""

    def submitted(**changes: object) -> TrainingJob:
        return TrainingJob.submit(platform, f"struck-{secrets.token_hex(4)}", **changes)

    return submitted


@pytest.fixture
def check_all(platform: StandalonePlatform, reference: Reference) -> CheckAll:
    """After the failure: the job succeeds once, and nothing is lost, duplicated or left."""

    def check(job: TrainingJob, *, attempts: int) -> None:
        state = job.wait_final()
        assert state["state"] == "succeeded", job.timeline()[-5:]
        assert state["attempt"] == attempts
        evidence.check_losses(job, reference.losses)
        assert evidence.final_weights(job) == reference.weights
        events = asyncio.run(settled(platform, job))
        evidence.check_sequences(events)
        evidence.check_succeeded_once(events, job.job_id)
        evidence.check_slots(events, job.job_id)
        assert evidence.check_charges(events, job.job_id) > 0
        evidence.check_paid_ends(platform, events, job.job_id)
        evidence.check_nothing_left(job)
        if attempts > 1:
            restored = job.events("checkpoint.restored")
            assert [item["resumed_by_attempt"] for item in restored] == list(range(2, attempts + 1))
            assert all(item["step"] > 0 for item in restored)

    return check


async def settled(platform: StandalonePlatform, job: TrainingJob) -> list[evidence.RawEvent]:
    """The raw events, once the last release of the job has been charged."""
    for _ in range(60):
        events = await evidence.read_raw(platform)
        kinds = [event for event in events if event.data.get("job_id") == job.job_id]
        released = {
            event.data["allocation_id"] for event in kinds if event.type == "allocation.released"
        }
        charged = {
            event.data["allocation_id"] for event in kinds if event.type == "charge.recorded"
        }
        if released and released == charged:
            return events
        await asyncio.sleep(0.5)
    raise AssertionError(f"released {released}, charged {charged}")
