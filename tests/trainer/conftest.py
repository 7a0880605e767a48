"""A warm template, and pods that are cleaned up."""

import os
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from drivetrain import seeding
from drivetrain_schemas.pods import KafkaAccess as PodKafkaAccess
from services.runtime.kafka_access import KafkaAccess
from services.runtime.topics import create_topics
from tests.trainer.pods import Pod
from tests.trainer.warm_template import WarmTemplate, warm_template_in


@pytest.fixture(autouse=True)
def unseeded() -> None:
    """Random number generators as in a new process, whatever other tests have done to them."""
    seeding.renew()


@pytest.fixture(scope="session")
def pods_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the template may start pods; those of a test have a job of their own."""
    return tmp_path_factory.mktemp("pods")


@pytest.fixture(scope="session")
def warm_template(
    tmp_path_factory: pytest.TempPathFactory, pods_root: Path
) -> Iterator[WarmTemplate]:
    """A template that has imported torch; this process may ask it."""
    with warm_template_in(tmp_path_factory.mktemp("template"), pods_root) as started:
        started.admit(os.getpid())
        yield started


@pytest.fixture(scope="session")
def template(warm_template: WarmTemplate) -> Path:
    """The socket of the template."""
    return warm_template.socket


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def topics(kafka: KafkaAccess) -> PodKafkaAccess:
    """Where pods send what they tell: without Kafka each waits three seconds at its end."""
    prefix = f"pods{secrets.token_hex(4)}."
    await create_topics(kafka, prefix)
    return PodKafkaAccess(
        bootstrap_servers=kafka.bootstrap_servers,
        topic_prefix=prefix,
        username=kafka.username,
        password=kafka.password,
    )


@pytest.fixture
def make_pod(
    request: pytest.FixtureRequest, tmp_path: Path, topics: PodKafkaAccess, pods_root: Path
) -> Iterator[Callable[..., Pod]]:
    """Below a root of the test's own, or below the template's where the test has that."""
    root = pods_root if "template" in request.fixturenames else tmp_path / "pods"
    pods: list[Pod] = []

    def make(**options: Any) -> Pod:
        pods.append(Pod(tmp_path, **{"kafka": topics, "pods": root, **options}))
        return pods[-1]

    yield make
    for pod in pods:
        pod.kill_all()
        if hasattr(pod, "process"):
            pod.process.kill()
            pod.process.wait()
