"""Fifty jobs beside one that trains, and what must hold for all of them whatever brokers do."""

import asyncio
import re
import secrets
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import asyncpg
import httpx

from tests.faults import evidence
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

NUM_JOBS = 50
BROKERS = ("kafka", "kafka-2", "kafka-3")
SHORT = {"name": "short", "command": "true", "resources": {"devices": 1}}


# One of each for every job, whatever was delivered twice.
EFFECTS = (
    "select count(*) from scheduler.jobs where job_id = any($1) and state = 'succeeded'",
    "select count(*) from scheduler.runs where job_id = any($1)",
    "select count(*) from cost.charges where job_id = any($1)",
    "select count(*) from gateway.runs where job_id = any($1) and state = 'succeeded'",
)


@contextmanager
def submissions(platform: StandalonePlatform, number: int = NUM_JOBS) -> Iterator[list[str]]:
    """Short jobs, submitted during the block, each until it is taken; their ids at its end."""
    prefix = f"meanwhile-{secrets.token_hex(4)}"
    jobs: list[str] = []
    with ThreadPoolExecutor(5) as executor:
        submitted: list[Future[str]] = [
            executor.submit(submit_until_taken, platform, f"{prefix}-{each}")
            for each in range(number)
        ]
        yield jobs
    jobs += [each.result() for each in submitted]


def submit_until_taken(platform: StandalonePlatform, request_id: str) -> str:
    """The same request again until it is answered, as clients do."""

    def try_it() -> str | None:
        try:
            with platform.client() as client:
                answer = client.post("/v1/jobs", json={"request_id": request_id, "spec": SHORT})
        except httpx.TransportError:
            return None
        assert answer.is_server_error or answer.status_code in (200, 201, 202), answer.text
        return None if answer.is_server_error else str(answer.json()["job_id"])

    return wait_until(try_it, f"{request_id} is taken", seconds=180, every=0.2)


def active_controller(platform: StandalonePlatform) -> str:
    """The broker that leads the metadata quorum, by the brokers' own logs."""
    epochs = {}
    for name in BROKERS:
        log = (platform.home / "logs" / f"{name}.log").read_text()
        found = re.findall(r"Becoming the active controller at epoch (\d+)", log)
        epochs[name] = int(found[-1]) if found else 0
    return max(epochs, key=lambda name: epochs[name])


def check_everything(
    platform: StandalonePlatform, training: TrainingJob, others: list[str]
) -> None:
    """Nothing is lost, nothing doubled, and the order of every key is kept."""
    assert training.wait_final(seconds=400)["state"] == "succeeded", training.timeline()[-5:]
    assert training.state()["attempt"] == 1
    evidence.check_losses(training, None)
    assert len(set(others)) == len(others)
    for job_id in others:
        assert TrainingJob(platform, job_id).wait_final(seconds=400)["state"] == "succeeded"
    jobs = [training.job_id, *others]
    events = wait_until(lambda: _when_charged(platform, jobs), "all is charged", seconds=120)
    order = defaultdict(list)
    for event in events:
        order[(event.topic, event.key)].append(event.seq)
    for place, found in order.items():
        assert found == list(range(1, len(found) + 1)), place
    for job_id in jobs:
        evidence.check_succeeded_once(events, job_id)
        evidence.check_charges(events, job_id)
        mine = [event.type for event in events if event.key == job_id]
        assert mine.count("allocation.granted") == 1
    evidence.check_slots(events, training.job_id)
    evidence.check_nothing_left(training)
    counted = asyncio.run(_count_rows(str(platform.admin["postgres_dsn"]), jobs))
    assert counted == {statement: len(jobs) for statement in EFFECTS}


def _when_charged(platform: StandalonePlatform, jobs: list[str]) -> list[evidence.RawEvent] | None:
    events = asyncio.run(evidence.read_raw(platform))
    charged = {event.data["job_id"] for event in events if event.type == "charge.recorded"}
    return events if charged.issuperset(jobs) else None


async def _count_rows(dsn: str, jobs: list[str]) -> dict[str, int]:
    connection = await asyncpg.connect(dsn)
    try:
        return {each: int(await connection.fetchval(each, jobs)) for each in EFFECTS}
    finally:
        await connection.close()
