"""The platform with an external Kafka, Postgres and S3, as described in the README."""

import json
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import pytest
import pytest_asyncio

from services.runtime.kafka_access import KafkaAccess
from tests import s3_server
from tests.faults import strikes
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob

MAX_STEPS = 150

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(s3_server.BUILD_SECONDS + 300)]


@pytest_asyncio.fixture(loop_scope="session")
async def postgres_database(postgres_dsn: str) -> AsyncIterator[str]:
    """A separate database, because the schemas have fixed names."""
    connection = await asyncpg.connect(postgres_dsn)
    name = f"outside_{secrets.token_hex(4)}"
    await connection.execute(f'create database "{name}"')
    yield urlsplit(postgres_dsn)._replace(path=f"/{name}").geturl()
    await connection.execute(f'drop database "{name}" with (force)')
    await connection.close()


@pytest.fixture
def outside(
    kafka: KafkaAccess,
    postgres_database: str,
    s3: s3_server.RunningS3,
    topic_prefix: str,
    tmp_path: Path,
) -> Iterator[StandalonePlatform]:
    assert kafka.username is not None
    assert kafka.password is not None
    variables = {
        "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": kafka.bootstrap_servers,
        "DRIVETRAIN_KAFKA_SASL_USERNAME": kafka.username,
        "DRIVETRAIN_KAFKA_SASL_PASSWORD": kafka.password,
        "DRIVETRAIN_TOPIC_PREFIX": topic_prefix,
        "DRIVETRAIN_POSTGRES_DSN": postgres_database,
        "DRIVETRAIN_OBJECT_STORE_URL": f"s3://{s3_server.BUCKET}/{topic_prefix}",
        "DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL": s3.endpoint_url,
    }
    standing = StandalonePlatform(
        tmp_path / "home", nodes=1, slots=2, outside={**variables, **s3_server.ENVIRONMENT}
    )
    standing.start()
    try:
        yield standing
    finally:
        standing.stop()


def test_a_killed_gang_resumes_from_s3(
    outside: StandalonePlatform, s3: s3_server.RunningS3, topic_prefix: str
) -> None:
    parts = outside.parts()
    assert {"kafka", "postgres"}.isdisjoint(
        name for name, part in parts.items() if part["state"] == "ready"
    )
    job = TrainingJob.submit(
        outside, "outside", max_steps=MAX_STEPS, checkpoint={"every_steps": 20, "keep_last": 2}
    )
    job.wait_for_strike()
    strikes.kill_gang(job)

    state = job.wait_final()

    assert (state["state"], state["attempt"]) == ("succeeded", 2)
    (restored,) = job.events("checkpoint.restored")
    assert restored["step"] > 0
    assert not (outside.home / "objects").exists()
    bucket = s3.directory / s3_server.BUCKET / topic_prefix
    manifests = [json.loads(path.read_text()) for path in bucket.rglob("manifest.json")]
    assert max(manifest["step"] for manifest in manifests) == MAX_STEPS
