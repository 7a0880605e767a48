"""Starts what a deployment says, with its own command and environment, on the session's servers.

Only what names a machine of the deployment is replaced: addresses, ports, directories, logins.
"""

import asyncio
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from services.runtime.kafka_access import KafkaAccess
from services.standalone.child import ChildSpec, Launch
from services.standalone.embedded import supervised
from services.standalone.ports import free_port
from services.standalone.probes import answers_http
from tests.s3_server import BUCKET, ENVIRONMENT, RunningS3

ROOT = Path(__file__).resolve().parents[3]
# What a deployment gives every service.
SHARED = {
    "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS",
    "DRIVETRAIN_TOPIC_REPLICATION_FACTOR",
    "DRIVETRAIN_POSTGRES_DSN",
    "DRIVETRAIN_OBJECT_STORE_URL",
    "DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL",
    "DRIVETRAIN_READ_TOKEN",
    "DRIVETRAIN_RUN_TOKEN_KEY",
    "DRIVETRAIN_OPS_HOST",
    "DRIVETRAIN_HTTP_HOST",
    *ENVIRONMENT,
}


ASSETS = "DRIVETRAIN_ASSETS_DIRECTORY"


@dataclass(frozen=True, slots=True)
class Started:
    """A service as a deployment starts it."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Servers:
    """Those of the session, in place of the deployment's."""

    kafka: KafkaAccess
    dsn: str
    s3: RunningS3
    topic_prefix: str
    directory: Path

    def instead_of(self, given: Mapping[str, str]) -> dict[str, str]:
        """The environment with what a machine of the deployment has replaced."""
        replaced = {
            "DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS": self.kafka.bootstrap_servers,
            "DRIVETRAIN_TOPIC_REPLICATION_FACTOR": "1",
            "DRIVETRAIN_POSTGRES_DSN": self.dsn,
            "DRIVETRAIN_OBJECT_STORE_URL": f"s3://{BUCKET}/{self.topic_prefix}",
            "DRIVETRAIN_OBJECT_STORE_ENDPOINT_URL": self.s3.endpoint_url,
            "DRIVETRAIN_PODS_DIRECTORY": str(self.directory / "pods"),
            "DRIVETRAIN_OPS_HOST": "127.0.0.1",
            "DRIVETRAIN_HTTP_HOST": "127.0.0.1",
            **ENVIRONMENT,
        }
        assert given.keys() >= SHARED, SHARED - given.keys()
        login = {
            "DRIVETRAIN_KAFKA_SASL_USERNAME": self.kafka.username or "",
            "DRIVETRAIN_KAFKA_SASL_PASSWORD": self.kafka.password or "",
            "DRIVETRAIN_KAFKA_SASL_MECHANISM": "PLAIN",
            "DRIVETRAIN_TOPIC_PREFIX": self.topic_prefix,
        }
        found = {**given, **{name: text for name, text in replaced.items() if name in given}}
        return found | login

    async def run(self, command: Sequence[str], given: Mapping[str, str]) -> None:
        """A one-shot, to its end."""
        process = await asyncio.create_subprocess_exec(
            *_here(command),
            env=_inherited() | self.instead_of(given),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0, output.decode()

    async def see_all_ready(self, services: Sequence[Started]) -> None:
        """All of them at once, each until all are ready. Raises the log of one that ends."""
        all_ready = asyncio.Barrier(len(services))

        async def one(service: Started) -> None:
            async with supervised(self._spec(service)):
                await all_ready.wait()

        async with asyncio.TaskGroup() as group:
            for service in services:
                group.create_task(one(service))

    def _spec(self, service: Started) -> ChildSpec:
        ops_port = free_port()
        ports = {"DRIVETRAIN_OPS_PORT": str(ops_port), "DRIVETRAIN_HTTP_PORT": str(free_port())}
        # Made by the installation.
        given = {name: text for name, text in service.environment.items() if name != ASSETS}
        variables = _inherited() | self.instead_of(given) | ports
        return ChildSpec(
            service.name,
            Launch(_here(service.command), variables, ROOT),
            self.directory / f"{service.name}.log",
            lambda: answers_http(ops_port, "/readyz"),
        )


def _here(command: Sequence[str]) -> tuple[str, ...]:
    assert Path(command[0]).name == "python", command
    return (sys.executable, *command[1:])


def _inherited() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
