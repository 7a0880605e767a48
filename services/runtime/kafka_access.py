"""Where the brokers are, and how to log in to them: one value for every client of a process.

In: the settings. Out: the options of aiokafka's clients; why a connection fails, in words that name
the setting and the fix. aiokafka itself reports only that it could not connect.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from drivetrain_schemas.kafka_security import (
    DEFAULT_MECHANISM,
    OF_SERVICES,
    SaslMechanism,
    SecurityProtocol,
    effective_protocol,
    explain,
    explain_at,
)
from services.runtime.settings import Settings
from services.runtime.tls import RenewedContext, TlsFiles, TlsNames, check_files

REQUEST_MS = 10_000
DIAGNOSIS_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class KafkaAccess:
    """The protocol is that of the user name where it is not given: with one, a login."""

    bootstrap_servers: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    security_protocol: SecurityProtocol | None = None
    sasl_mechanism: SaslMechanism = DEFAULT_MECHANISM
    tls: TlsFiles = field(default_factory=TlsFiles)

    @classmethod
    def of(cls, settings: Settings) -> "KafkaAccess":
        """Raises ConfigurationError for a file that cannot be used."""
        password = settings.kafka_sasl_password
        access = cls(
            settings.kafka_bootstrap_servers,
            settings.kafka_sasl_username,
            password.get_secret_value() if password else None,
            settings.kafka_security_protocol,
            settings.kafka_sasl_mechanism or DEFAULT_MECHANISM,
            TlsFiles(
                settings.kafka_ca_path, settings.kafka_certificate_path, settings.kafka_key_path
            ),
        )
        if access.protocol.endswith("SSL"):
            names = OF_SERVICES
            check_files(access.tls, TlsNames(names.ca, names.certificate, names.key))
        return access

    @property
    def protocol(self) -> SecurityProtocol:
        return effective_protocol(self.security_protocol, self.username)

    def options(self) -> dict[str, Any]:
        """Connection options of every aiokafka client."""
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "request_timeout_ms": REQUEST_MS,
            "metadata_max_age_ms": 60_000,
            **self.security(),
        }

    def security(self) -> dict[str, Any]:
        options: dict[str, Any] = {"security_protocol": self.protocol}
        if self.protocol.endswith("SSL"):
            options["ssl_context"] = RenewedContext(self.tls)
        if self.protocol.startswith("SASL_"):
            options |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.username,
                "sasl_plain_password": self.password,
            }
        return options


async def why(access: KafkaAccess, error: BaseException) -> str:
    """Why a client cannot connect. `error`: what it raised, used where no other cause is found.

    Connects once more to each broker that the settings name, because aiokafka's clients do not
    pass on the cause.
    """
    try:
        async with asyncio.timeout(DIAGNOSIS_SECONDS):
            problems = [problem async for problem in _problems(access)]
    except TimeoutError as late:
        problems = [f"{access.bootstrap_servers}: {explain(late, OF_SERVICES)}"]
    return f"Kafka cannot be used: {'; '.join(problems) or explain(error, OF_SERVICES)}"


async def ask_metadata(host: str, port: int, **options: Any) -> Any:
    """What this broker answers over one connection, which is closed whatever happens.

    A client whose start is cancelled leaves its first connection open. `options`: of aiokafka's
    connections. Raises KafkaError, OSError, EOFError.
    """
    connection = await create_conn(host, port, **options)
    try:
        return await connection.send(MetadataRequest([]))
    finally:
        connection.close()


async def _problems(access: KafkaAccess) -> AsyncIterator[str]:
    for host, port, _family in collect_hosts(access.bootstrap_servers):
        try:
            await ask_metadata(host, port, request_timeout_ms=REQUEST_MS, **access.security())
        except (KafkaError, OSError, EOFError) as error:
            yield explain_at(host, port, error, OF_SERVICES)
