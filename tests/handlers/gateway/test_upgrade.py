"""A version that changes the tables of the read model reads the topics again by itself."""

import secrets

import asyncpg

from services.runtime import migrations
from services.runtime.database import Database
from services.runtime.transaction import Origin

FIRST_REWRITE = "0005_folded_views.sql"


async def test_tables_of_an_earlier_version_are_read_again_from_the_start(
    postgres_dsn: str,
) -> None:
    schema = f"gateway_{secrets.token_hex(4)}"
    connection = await asyncpg.connect(postgres_dsn)
    try:
        await migrations.migrate(connection, schema, ["services.runtime"])
        await connection.execute(f'set search_path to "{schema}"')
        for name, text in migrations._scripts("services.gateway"):
            if name < FIRST_REWRITE:
                digest = migrations.hashlib.sha256(text.encode()).hexdigest()
                await migrations._apply(connection, "services.gateway", name, text, digest)
        await connection.execute(
            """
            insert into jobs (job_id, tenant_id) values ('job_old', 'default');
            insert into rewound (consumer_group, topic, partition)
                values ('drivetrain.gateway', 'drivetrain.events.jobs', 0);
            insert into sequence (topic, key, seq) values ('events.jobs', 'job_old', 1);
            insert into login_codes values ('code', now());
            update stream set last_cursor = 9;
            """
        )
        before = await connection.fetchval("select generation from stream")
        opened = Database(postgres_dsn, schema, Origin("/drivetrain/gateway", "drivetrain."))
        await opened.open(["services.gateway"])
        await opened.close()
        for table in ("jobs", "rewound", "sequence"):
            assert await connection.fetchval(f"select count(*) from {table}") == 0, table
        assert await connection.fetchval("select count(*) from login_codes") == 1
        after = await connection.fetchrow("select generation, last_cursor from stream")
        assert after["generation"] != before
        assert after["last_cursor"] == 0
    finally:
        await connection.execute(f'drop schema "{schema}" cascade')
        await connection.close()
