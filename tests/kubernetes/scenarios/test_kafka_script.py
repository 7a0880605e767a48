"""`deploy/kafka/create.sh` with the tools of Kafka itself, on a broker with an authorizer.

It starts Java more than forty times (about a minute), and needs no Kubernetes.
"""

import asyncio
import os
import shlex
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from drivetrain_schemas.access import ACCESS, POD
from drivetrain_schemas.topics import TOPICS
from services.runtime.access.acls import Changes, wanted_acls
from services.runtime.access.kafka import apply_acls
from services.runtime.access.quotas import apply_quotas, wanted_quotas
from services.runtime.topics import wanted_topic
from services.standalone import jars, kafka
from tests.access_rights import may_use_group, may_write, readable
from tests.secured_kafka import SecuredKafka, running_secured_kafka

SCRIPT = Path(__file__).parents[3] / "deploy" / "kafka" / "create.sh"
TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-acls.sh": "org.apache.kafka.tools.AclCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
}
PREFIX = "drivetrain."

pytestmark = pytest.mark.timeout(600)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def prepared(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SecuredKafka]:
    """A broker on which nothing but the script has made topics and access lists."""
    directory = tmp_path_factory.mktemp("script")
    async with running_secured_kafka(directory, [*ACCESS]) as running:
        await asyncio.to_thread(run_script, running, directory)
        yield running


def run_script(running: SecuredKafka, directory: Path) -> None:
    access = running.mtls("drivetrain")
    for name, tool in TOOLS.items():
        command = [*kafka._java(classpath(), kafka.FORMAT_FLAGS), tool]
        (directory / name).write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
        (directory / name).chmod(0o755)
    key, certificate = access.tls.key, access.tls.certificate
    (directory / "admin.pem").write_bytes(key.read_bytes() + certificate.read_bytes())
    (directory / "admin.properties").write_text(
        "security.protocol=SSL\n"
        "ssl.truststore.type=PEM\n"
        f"ssl.truststore.location={access.tls.ca}\n"
        "ssl.keystore.type=PEM\n"
        f"ssl.keystore.location={directory / 'admin.pem'}\n"
    )
    done = subprocess.run(
        [
            *(SCRIPT, "--bootstrap-server", access.bootstrap_servers),
            *("--command-config", directory / "admin.properties"),
        ],
        env={"PATH": f"{directory}:{os.environ['PATH']}", "REPLICAS": "1"},
        check=False,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]


def classpath() -> tuple[Path, ...]:
    wanted = (*jars.locked_jars("kafka"), *jars.locked_jars("kafka-tools"))
    return jars.fetch_jars(wanted, jars.default_cache())


async def test_its_access_lists_are_those_of_the_table(prepared: SecuredKafka) -> None:
    assert await apply_acls(prepared.admin, wanted_acls(PREFIX)) == Changes((), ())


async def test_its_quotas_are_those_of_the_table(prepared: SecuredKafka) -> None:
    assert await apply_quotas(prepared.admin, wanted_quotas()) == {}


async def test_its_topics_are_the_declared_ones(prepared: SecuredKafka) -> None:
    admin = AIOKafkaAdminClient(**prepared.admin.options())
    await admin.start()
    try:
        wanted = {each.name: each for each in (wanted_topic(topic, PREFIX, 1) for topic in TOPICS)}
        described = await admin.describe_topics([*wanted])
        resources = [ConfigResource(ConfigResourceType.TOPIC, name) for name in wanted]
        (answer,) = await admin.describe_configs(resources)
    finally:
        await admin.close()
    partitions = {each["topic"]: len(each["partitions"]) for each in described}
    assert partitions == {name: topic.num_partitions for name, topic in wanted.items()}
    for _code, _text, _type, name, entries in answer.resources:
        values = {key: value for key, value, *_ in entries}
        chosen = {key: values[key] for key in wanted[name].configs}
        assert chosen == wanted[name].configs


@pytest.mark.parametrize("user", [POD, "cost"])
async def test_a_user_may_do_what_the_table_grants_and_no_more(
    prepared: SecuredKafka, user: str
) -> None:
    access = prepared.scram(user)
    written = {topic.name for topic in TOPICS if await may_write(access, PREFIX, topic.name)}
    assert written == {topic.name for topic in ACCESS[user].writes}
    assert await readable(access, PREFIX) == {topic.name for topic in ACCESS[user].reads}
    if user != POD:
        topic = PREFIX + ACCESS[user].reads[0].name
        assert await may_use_group(access, f"{PREFIX}{user}.tests", topic)
        assert not await may_use_group(access, f"{PREFIX}hpo", topic)
