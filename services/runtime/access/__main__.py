"""`python -m services.runtime.access kafka|postgres`: the least rights of every service and pod.

For an outside Kafka and Postgres, with the login of an administrator in the usual settings. Each
may be repeated: it creates what is missing; on Kafka it also deletes what the table of access no
longer gives to its users, and leaves the entries of others and quotas that are set. Kafka's users
themselves are made by its operator. `postgres --print` prints the SQL instead; the same for Kafka
is deploy/kafka. Exit codes: 0 done, 1 a part does not answer or refuses, 2 an invalid setting,
which is named.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path

import asyncpg
from aiokafka.errors import KafkaError
from pydantic import SecretStr

from drivetrain_schemas.topics import SERVICES
from services.runtime import logs
from services.runtime.access.acls import is_of_platform, wanted_acls
from services.runtime.access.kafka import Refused, apply_acls
from services.runtime.access.quotas import apply_quotas, wanted_quotas
from services.runtime.access.roles import create_roles, role_sql
from services.runtime.errors import ConfigurationError
from services.runtime.kafka_access import KafkaAccess, why
from services.runtime.settings import Settings, from_process

log = logs.get()


class AccessSettings(Settings):
    """Each command needs only its own part."""

    kafka_bootstrap_servers: str = ""
    postgres_dsn: SecretStr = SecretStr("")


async def grant_kafka(settings: AccessSettings, user_form: str) -> int:
    if not settings.kafka_bootstrap_servers:
        raise ConfigurationError("DRIVETRAIN_KAFKA_BOOTSTRAP_SERVERS: it is not set")
    access, prefix = KafkaAccess.of(settings), settings.topic_prefix
    wanted = wanted_acls(prefix, user_form)
    try:
        done = await apply_acls(access, wanted, is_of_platform(prefix, wanted))
        limited = await apply_quotas(access, wanted_quotas(user_form))
    except Refused as error:
        print(f"the broker refuses access lists: {error}", file=sys.stderr)
        return 1
    except (KafkaError, OSError) as error:
        print(await why(access, error), file=sys.stderr)
        return 1
    log.info("access lists applied", created=len(done.missing), deleted=len(done.surplus))
    log.info("quotas applied", users=sorted({each.user for each in limited}))
    return 0


async def grant_postgres(settings: AccessSettings, passwords: Path | None) -> int:
    dsn = settings.postgres_dsn.get_secret_value()
    if not dsn:
        raise ConfigurationError("DRIVETRAIN_POSTGRES_DSN: it is not set")
    try:
        await create_roles(dsn, read_passwords(passwords) if passwords else {})
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as error:
        print(f"roles are not applied: {error}", file=sys.stderr)
        return 1
    log.info("roles applied", roles=SERVICES)
    return 0


def read_passwords(path: Path) -> dict[str, str]:
    """Raises ConfigurationError that shows no password."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        raise ConfigurationError(f"--passwords: {path} cannot be read as JSON") from None
    known = {"scheduler": "..."}
    if not isinstance(found, dict) or not all(isinstance(it, str) for it in found.values()):
        raise ConfigurationError(f"--passwords: {path}: write {json.dumps(known)}")
    unknown = sorted(set(found) - set(SERVICES))
    if unknown:
        raise ConfigurationError(
            f"--passwords: {path}: {unknown[0]!r} is no service; those are {', '.join(SERVICES)}"
        )
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m services.runtime.access",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(dest="command", required=True)
    kafka = commands.add_parser("kafka", help="access lists of Kafka")
    kafka.add_argument(
        "--user", default="{user}", help="form of the users' names; with certificates CN={user}"
    )
    postgres = commands.add_parser("postgres", help="roles and schemas of Postgres")
    postgres.add_argument("--print", action="store_true", dest="is_printed")
    postgres.add_argument("--passwords", type=Path, help='JSON file: {"scheduler": "...", ...}')
    given = parser.parse_args(list(arguments))
    logs.configure("access")
    try:
        settings = from_process(AccessSettings)
        if given.command == "kafka":
            return asyncio.run(grant_kafka(settings, given.user))
        if given.is_printed:
            print(role_sql(), end="")
            return 0
        return asyncio.run(grant_postgres(settings, given.passwords))
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
