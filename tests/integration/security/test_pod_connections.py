"""Pods connect to a secured Kafka with what their spec holds, and pass none of it on."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from drivetrain.pod.events import OutRecord
from drivetrain.pod.telemetry import Telemetry
from drivetrain_schemas.pods import KafkaAccess
from services.runtime.topics import create_topics
from tests.secured_kafka import SecuredKafka
from tests.trainer.conftest import make_pod, pods_root, topics
from tests.trainer.pods import Pod

__all__ = ["make_pod", "pods_root", "topics"]


def by_scram(secured: SecuredKafka, prefix: str, **changes: str) -> KafkaAccess:
    facts = {
        "bootstrap_servers": secured.servers["scram"],
        "topic_prefix": prefix,
        "username": "pod",
        "password": secured.passwords["pod"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "ca": secured.ca.cert_pem.bytes().decode(),
    }
    return KafkaAccess.model_validate(facts | changes)


def by_certificate(secured: SecuredKafka, prefix: str) -> KafkaAccess:
    leaf = secured.ca.issue_cert("drivetrain", common_name="drivetrain")
    return KafkaAccess(
        bootstrap_servers=secured.servers["mtls"],
        topic_prefix=prefix,
        security_protocol="SSL",
        ca=secured.ca.cert_pem.bytes().decode(),
        certificate=leaf.cert_chain_pems[0].bytes().decode(),
        key=leaf.private_key_pem.bytes().decode(),
    )


async def test_a_pod_writes_with_a_client_certificate(
    secured: SecuredKafka, topic_prefix: str
) -> None:
    await create_topics(secured.admin, topic_prefix)
    sender = Telemetry(by_certificate(secured, topic_prefix))
    sender.put(OutRecord(f"{topic_prefix}metrics", b"run", b"{}", []))
    sender.start()
    assert await sender.flush(30)
    await sender.close()


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        ({"password": "wrong"}, "check DRIVETRAIN_PODS_KAFKA_USERNAME"),
        ({"ca": ""}, "signed by a known CA .*DRIVETRAIN_PODS_KAFKA_CA_PATH"),
    ],
)
async def test_a_pod_says_why_it_cannot_connect(
    secured: SecuredKafka, caplog: pytest.LogCaptureFixture, wrong: dict[str, str], problem: str
) -> None:
    caplog.set_level(logging.INFO, "drivetrain.pod")
    sender = Telemetry(by_scram(secured, "any.").model_copy(update=wrong))
    sender.put(OutRecord("any.metrics", b"run", b"{}", []))
    sender.start()
    async with asyncio.timeout(30):
        while problem.split(" .*")[-1] not in caplog.text:
            await asyncio.sleep(0.02)
    await sender.close()


async def test_a_program_is_given_no_login(
    secured: SecuredKafka, topic_prefix: str, make_pod: Callable[..., Pod]
) -> None:
    """Neither its environment nor any log of the pod holds a password or a key."""
    access = by_scram(secured, topic_prefix).model_copy(
        update={"key": "-----BEGIN PRIVATE KEY----- of the pod", "password": "wrong-but-secret"}
    )
    pod = make_pod(command=["sh", "-c", "env; cat /proc/$PPID/cmdline"], kafka=access)
    pod.start_cold()
    end = await asyncio.to_thread(pod.wait_for_exit)
    assert "DRIVETRAIN_RUN_ID" in pod.log
    for text in (pod.log, pod.launch_log, end.model_dump_json()):
        for secret in ("PRIVATE KEY", "wrong-but-secret", "BEGIN CERTIFICATE"):
            assert secret not in text
