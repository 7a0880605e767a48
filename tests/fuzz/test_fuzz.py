"""A campaign of malformed and hostile records beside real work: nothing stops, nothing is lost.

`make fuzz` sends 20,000 records (`--fuzz-records`, `--fuzz-seed`), the ordinary run a few hundred.
"""

import asyncio
import json
import os
from collections import Counter

import pytest

from drivetrain_schemas.access import CLIENT, POD
from drivetrain_schemas.topics import SERVICES
from tests.fuzz import campaign
from tests.fuzz.campaign import Access, Sent
from tests.fuzz.kinds import KINDS, REFUSED
from tests.fuzz.records import GATEWAY_TOPICS, POD_TOPICS, TYPES_OF_TOPIC
from tests.standalone_platform import StandalonePlatform
from tests.training_job import MAX_STEPS, TrainingJob
from tests.waiting import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def job(platform: StandalonePlatform) -> TrainingJob:
    """The training that goes on beside the campaign."""
    return TrainingJob.submit(platform, f"fuzz-{os.getpid()}")


@pytest.fixture(scope="module")
def pids_before(platform: StandalonePlatform) -> dict[str, int]:
    return {name: platform.pid(name) for name in SERVICES}


@pytest.fixture(scope="module")
def sent(
    platform: StandalonePlatform,
    pids_before: dict[str, int],
    job: TrainingJob,
    request: pytest.FixtureRequest,
) -> Sent:
    num_records = request.config.getoption("--fuzz-records")
    seed = request.config.getoption("--fuzz-seed")
    return asyncio.run(campaign.send(access_of_writers(platform), num_records, seed))


def access_to(platform: StandalonePlatform) -> Access:
    """The administrator's, who may read everything."""
    return _login(platform.admin["kafka"])


def access_of_writers(platform: StandalonePlatform) -> dict[str, Access]:
    """For each topic the credential of those who may write it: pods, clients, or the gateway."""
    users = json.loads((platform.home / "credentials.json").read_text())["kafka_users"]
    writers = dict.fromkeys(POD_TOPICS, POD) | dict.fromkeys(GATEWAY_TOPICS, "gateway")
    return {
        topic: _login(platform.admin["kafka"] | {"username": user, "password": users[user]})
        for topic in TYPES_OF_TOPIC
        for user in (writers.get(topic, CLIENT),)
    }


def _login(kafka: dict[str, str]) -> Access:
    return {
        "bootstrap_servers": kafka["bootstrap_servers"],
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": kafka["username"],
        "sasl_plain_password": kafka["password"],
    }


def test_there_are_at_least_35_kinds() -> None:
    assert len(KINDS) >= 35


def test_every_valid_request_among_them_is_answered(
    platform: StandalonePlatform, sent: Sent
) -> None:
    def unanswered() -> set[str]:
        return set(sent.neighbours) - asyncio.run(campaign.answered_commands(access_to(platform)))

    assert sent.neighbours
    wait_until(lambda: not unanswered(), "all requests are answered", seconds=600, every=2.0)


def test_every_record_that_cannot_be_an_event_is_parked(
    platform: StandalonePlatform, sent: Sent
) -> None:
    wanted = {position for position, name in sent.positions.items() if name in REFUSED}
    assert wanted
    missing: set[campaign.Position] = wanted

    def all_parked() -> bool:
        nonlocal missing
        parked = asyncio.run(campaign.parked_positions(access_to(platform), SERVICES))
        missing = wanted - parked
        return not missing

    try:
        wait_until(all_parked, "all are parked", seconds=600, every=2.0)
    except AssertionError:
        raise AssertionError(Counter(sent.positions[item] for item in missing)) from None


def test_no_service_ended(
    platform: StandalonePlatform, sent: Sent, pids_before: dict[str, int]
) -> None:
    test_every_valid_request_among_them_is_answered(platform, sent)
    assert {name: platform.pid(name) for name in SERVICES} == pids_before


def test_the_training_beside_it_is_undisturbed(
    platform: StandalonePlatform, sent: Sent, job: TrainingJob
) -> None:
    state = job.wait_final()
    assert state["state"] == "succeeded"
    assert state["attempt"] == 1

    def losses() -> bool:
        found = platform.get(f"/v1/jobs/{job.job_id}/metrics", names="loss", max_points=1000)
        return bool(found["series"]["loss"]["num_samples"] == MAX_STEPS)

    wait_until(losses, "every loss is there")
