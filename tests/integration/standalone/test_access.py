"""The rights of every user of the embedded broker and every role of the embedded Postgres."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    InvalidTransactionTimeout,
    KafkaError,
)

from drivetrain_schemas.access import ACCESS, CLIENT, POD
from drivetrain_schemas.topics import SERVICES, TOPICS
from services.runtime import migrations
from services.runtime.access.acls import wanted_acls
from services.runtime.access.kafka import apply_acls
from services.runtime.access.roles import MAX_CONNECTIONS_OF_A_ROLE
from services.runtime.kafka_access import KafkaAccess
from services.runtime.topics import create_topics
from services.standalone.embedded import running_kafka, running_postgres
from services.standalone.kafka import KafkaConnection
from services.standalone.roles import READER, apply_roles
from tests.access_rights import may_write, readable

PREFIX = "access."
PASSWORDS = {name: f"secret-of-{name}" for name in ACCESS}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def admin(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KafkaConnection]:
    """The administrator's connection to a broker with every user, list and topic."""
    async with running_kafka(tmp_path_factory.mktemp("kafka"), users=PASSWORDS) as kafka:
        connection = KafkaConnection(kafka.bootstrap_servers, kafka.username, kafka.password)
        first = await apply_acls(connection, wanted_acls(PREFIX))
        assert set(first.missing) == wanted_acls(PREFIX)
        access = KafkaAccess(kafka.bootstrap_servers, kafka.username, kafka.password)
        await create_topics(access, PREFIX)
        yield connection


def as_user(admin: KafkaConnection, name: str) -> KafkaConnection:
    return KafkaConnection(admin.bootstrap_servers, name, PASSWORDS[name])


@pytest.mark.parametrize("name", sorted(ACCESS))
async def test_a_user_writes_and_reads_what_the_table_says_and_nothing_else(
    admin: KafkaConnection, name: str
) -> None:
    connection = as_user(admin, name)
    written = {topic.name for topic in TOPICS if await may_write(connection, PREFIX, topic.name)}
    assert written == {topic.name for topic in ACCESS[name].writes}
    assert await readable(connection, PREFIX) == {topic.name for topic in ACCESS[name].reads}


async def test_a_second_start_changes_no_list(admin: KafkaConnection) -> None:
    again = await apply_acls(admin, wanted_acls(PREFIX))
    assert (again.missing, again.surplus) == ((), ())


async def test_a_right_that_the_table_no_longer_gives_is_taken_back(admin: KafkaConnection) -> None:
    await apply_acls(admin, wanted_acls(PREFIX) | wanted_acls("other."))
    taken_back = await apply_acls(admin, wanted_acls(PREFIX))
    assert {acl.name.split(".")[0] for acl in taken_back.surplus} == {"other"}


@pytest.mark.parametrize("group", ["cost", "gateway.streams"])
async def test_a_client_cannot_join_a_group_of_a_service(
    admin: KafkaConnection, group: str
) -> None:
    connection = as_user(admin, CLIENT)
    consumer = AIOKafkaConsumer(
        f"{PREFIX}events.jobs", group_id=PREFIX + group, **connection.options()
    )
    with pytest.raises(GroupAuthorizationFailedError):
        await consumer.start()
    await consumer.stop()


async def test_a_client_reads_events_in_a_group_of_its_own(admin: KafkaConnection) -> None:
    connection = as_user(admin, CLIENT)
    consumer = AIOKafkaConsumer(
        f"{PREFIX}events.jobs", group_id="their-own", **connection.options()
    )
    await consumer.start()
    assert consumer.assignment()
    await consumer.stop()


async def test_pods_cannot_change_access_lists(admin: KafkaConnection) -> None:
    with pytest.raises((KafkaError, RuntimeError)):
        await apply_acls(as_user(admin, POD), wanted_acls(PREFIX))


async def test_a_transaction_may_stay_open_for_half_a_minute_at_most(
    admin: KafkaConnection,
) -> None:
    """Longer, it would hold back every command of its partition."""
    options = as_user(admin, CLIENT).options()
    long = AIOKafkaProducer(**options, transactional_id="theirs", transaction_timeout_ms=60_000)
    with pytest.raises(InvalidTransactionTimeout):
        await long.start()
    await long.stop()
    short = AIOKafkaProducer(**options, transactional_id="theirs", transaction_timeout_ms=30_000)
    await short.start()
    async with short.transaction():
        await short.send_and_wait(f"{PREFIX}commands.jobs", b"{}")
    await short.stop()


ROLES = {name: f"secret-of-{name}" for name in (*SERVICES, READER)}


def dsn_of(dsn: str, role: str) -> str:
    return f"postgresql://{role}:{ROLES[role]}@{dsn.rpartition('@')[2]}"


@asynccontextmanager
async def connected(dsn: str, role: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn_of(dsn, role))
    try:
        yield connection
    finally:
        await connection.close()


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The administrator's DSN of a server whose schemas the administrator has made."""
    async with running_postgres(tmp_path_factory.mktemp("postgres")) as postgres:
        connection = await asyncpg.connect(postgres.dsn)
        for name in SERVICES:
            await migrations.migrate(connection, name, ["services.runtime", f"services.{name}"])
        await connection.close()
        await apply_roles(postgres.dsn, ROLES)
        await apply_roles(postgres.dsn, ROLES)
        yield postgres.dsn


@pytest.mark.parametrize("name", SERVICES)
async def test_a_role_owns_its_schema_and_sees_no_other(server: str, name: str) -> None:
    async with connected(server, name) as connection:
        await connection.execute(f'set search_path to "{name}"')
        await migrations.migrate(connection, name, ["services.runtime", f"services.{name}"])
        await connection.execute("insert into outbox_counter values ('t', 'k', 1)")
        await connection.execute("alter table outbox add column extra text")
        assert not await connection.fetchval(
            "select rolsuper or rolcreatedb or rolcreaterole from pg_roles where rolname = $1", name
        )
        for other in (other for other in SERVICES if other != name):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.fetch(f"select * from {other}.outbox")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("create table public.anything (number int)")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch("select pg_read_file('PG_VERSION')")


async def test_only_a_projection_may_drop_and_make_its_schema(server: str) -> None:
    async with connected(server, "gateway") as connection:
        await connection.execute("drop schema gateway cascade")
        await migrations.migrate(connection, "gateway", ["services.runtime", "services.gateway"])
    async with connected(server, "cost") as connection:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("create schema mine")


async def test_the_reader_reads_every_table_and_writes_none(server: str) -> None:
    async with connected(server, READER) as connection:
        for name in SERVICES:
            await connection.fetch(f'select * from "{name}".outbox')
        await connection.execute("set default_transaction_read_only = off")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.execute("delete from cost.outbox")


async def test_a_service_that_takes_every_connection_it_can_leaves_enough_for_the_others(
    server: str,
) -> None:
    held = [await asyncpg.connect(dsn_of(server, "hpo")) for _ in range(MAX_CONNECTIONS_OF_A_ROLE)]
    with pytest.raises(asyncpg.TooManyConnectionsError):
        await asyncpg.connect(dsn_of(server, "hpo"))
    async with connected(server, "scheduler") as connection:
        assert await connection.fetchval("select 1") == 1
    await asyncio.gather(*(connection.close() for connection in held))


async def test_a_password_that_has_changed_is_the_one_that_holds(server: str) -> None:
    try:
        await apply_roles(server, {**ROLES, "hpo": "another"})
        with pytest.raises(asyncpg.InvalidPasswordError):
            await asyncpg.connect(dsn_of(server, "hpo"))
    finally:
        await apply_roles(server, ROLES)
