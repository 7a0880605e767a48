"""The servers in place of a deployment's own."""

from pathlib import Path

import pytest

from services.runtime.kafka_access import KafkaAccess
from tests.integration.hosts.starting import Servers
from tests.s3_server import RunningS3


@pytest.fixture
def servers(
    kafka: KafkaAccess, own_database: str, s3: RunningS3, topic_prefix: str, tmp_path: Path
) -> Servers:
    return Servers(kafka, own_database, s3, topic_prefix, tmp_path)
