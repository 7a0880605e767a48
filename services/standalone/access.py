"""`python -m services.standalone.access --home DIR --kafka --postgres`: rights of every user.

A one-shot that the supervisor runs before any service: access lists and quotas on the embedded
broker, roles in the embedded Postgres, both from the secrets of the data directory. An outside
broker or server has its own operator. Exit codes: 0 done, 1 a part does not answer or refuses.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import asyncpg
from aiokafka.errors import KafkaError

from services.runtime import logs
from services.runtime.access.acls import wanted_acls
from services.runtime.access.kafka import Refused, apply_acls
from services.runtime.access.quotas import apply_quotas, wanted_quotas
from services.standalone.credentials import load_or_create
from services.standalone.home import Home
from services.standalone.kafka_cluster import brokers_in, num_brokers
from services.standalone.postgres import Server
from services.standalone.roles import apply_roles

DEFAULT_PREFIX = "drivetrain."
log = logs.get()


async def apply(home: Home, *, with_kafka: bool, with_postgres: bool) -> None:
    credentials = load_or_create(home.credentials)
    ports = json.loads(home.ports.read_text())
    if with_kafka:
        number = num_brokers(home.kafka, None)
        brokers = brokers_in(home.kafka, number, ports, credentials)
        prefix = os.environ.get("DRIVETRAIN_TOPIC_PREFIX", DEFAULT_PREFIX)
        changes = await apply_acls(brokers.connection, wanted_acls(prefix))
        await apply_quotas(brokers.connection, wanted_quotas())
        log.info("access lists applied", created=len(changes.missing), deleted=len(changes.surplus))
    if with_postgres:
        server = Server(home.postgres, ports["postgres"], credentials.postgres_password)
        await apply_roles(server.dsn, credentials.postgres_roles)
        log.info("roles applied", roles=sorted(credentials.postgres_roles))


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m services.standalone.access")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--kafka", action="store_true")
    parser.add_argument("--postgres", action="store_true")
    given = parser.parse_args(list(arguments))
    logs.configure("access")
    try:
        work = apply(Home(given.home), with_kafka=given.kafka, with_postgres=given.postgres)
        asyncio.run(work)
    except (KafkaError, Refused, asyncpg.PostgresError, OSError) as error:
        print(f"access rights are not applied: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
