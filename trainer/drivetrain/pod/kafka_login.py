"""How a pod logs in to Kafka, and why it could not.

In: what its spec says, with certificates as text. Out: options of aiokafka's producer. aiokafka
reports only that it could not connect; the cause is looked for here, and named with the settings of
the scheduler that made the spec.
"""

import asyncio
import os
import ssl
from typing import Any

from aiokafka.conn import collect_hosts, create_conn
from aiokafka.errors import KafkaError
from aiokafka.protocol.metadata import MetadataRequest

from drivetrain_schemas.kafka_security import (
    DEFAULT_MECHANISM,
    OF_PODS,
    effective_protocol,
    explain_at,
)
from drivetrain_schemas.pods import KafkaAccess

_DIAGNOSIS_SECONDS = 3.0


def login_options(access: KafkaAccess) -> dict[str, Any]:
    """Raises ssl.SSLError where the certificates cannot be used."""
    protocol = effective_protocol(access.security_protocol, access.username)
    options: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        options["ssl_context"] = _context(access)
    if protocol.startswith("SASL_"):
        options |= {
            "sasl_mechanism": access.sasl_mechanism or DEFAULT_MECHANISM,
            "sasl_plain_username": access.username,
            "sasl_plain_password": access.password,
        }
    return options


def _context(access: KafkaAccess) -> ssl.SSLContext:
    """Verifies the broker and its name: by this CA only, or by those of the system."""
    context = ssl.create_default_context(cadata=access.ca)
    if access.certificate is not None and access.key is not None:
        # OpenSSL reads them from a file only: one in memory that no other process can open by name.
        file = os.memfd_create("client-certificate")
        try:
            with open(file, "wb", closefd=False) as pem:
                pem.write(f"{access.key}\n{access.certificate}".encode())
            context.load_cert_chain(f"/proc/self/fd/{file}")
        finally:
            os.close(file)
    return context


async def why(access: KafkaAccess, error: BaseException) -> str:
    """Why the pod cannot connect. `error`: what the client raised, used where no cause is found."""
    try:
        async with asyncio.timeout(_DIAGNOSIS_SECONDS):
            for host, port, _family in collect_hosts(access.bootstrap_servers):
                try:
                    connection = await create_conn(host, port, **login_options(access))
                    try:
                        await connection.send(MetadataRequest([]))
                    finally:
                        connection.close()
                except (KafkaError, OSError, EOFError) as cause:
                    return explain_at(host, port, cause, OF_PODS)
    except TimeoutError:
        pass
    return repr(error)
