"""A warm template, and pods that are cleaned up."""

import secrets
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from drivetrain import seeding
from drivetrain_schemas.pods import KafkaAccess as PodKafkaAccess
from services.runtime.kafka_access import KafkaAccess
from services.runtime.topics import create_topics
from tests.trainer.pods import Pod, wait_for


@pytest.fixture(autouse=True)
def unseeded() -> None:
    """Random number generators as in a new process, whatever other tests have done to them."""
    seeding.renew()


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of a template that has imported torch."""
    directory = tmp_path_factory.mktemp("template")
    path = directory / "s"
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "drivetrain.template", "--socket", str(path)],
            stdout=log,
            stderr=log,
        )
    try:
        wait_for(lambda: path.exists() or process.poll() is not None, "the template to listen", 120)
        assert process.poll() is None, (directory / "log").read_text()
        yield path
    finally:
        process.kill()
        process.wait()


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
def make_pod(tmp_path: Path, topics: PodKafkaAccess) -> Iterator[Callable[..., Pod]]:
    pods: list[Pod] = []

    def make(**options: Any) -> Pod:
        pods.append(Pod(tmp_path, **{"kafka": topics, **options}))
        return pods[-1]

    yield make
    for pod in pods:
        pod.kill_all()
        if hasattr(pod, "process"):
            pod.process.kill()
            pod.process.wait()
