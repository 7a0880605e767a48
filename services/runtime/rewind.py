"""A projection reads every partition from offset 0 once per schema."""

import asyncpg

from services.runtime.bus import Partition, RecordSource
from services.runtime.database import Database
from services.runtime.errors import PlatformError

_SCHEMA = "select current_schema()::regnamespace::oid"
_IS_REWOUND = """
select 1 from rewound where consumer_group = $1 and topic = $2 and partition = $3
"""
_REWOUND = """
insert into rewound (consumer_group, topic, partition) values ($1, $2, $3) on conflict do nothing
"""


class SchemaReplaced(PlatformError):
    """The schema to which this process's positions belong was dropped."""


class Rewind:
    """Which partitions of one group begin at 0; the mark in the schema survives a crash."""

    def __init__(self, group: str, source: RecordSource, database: Database) -> None:
        self._group = group
        self._source = source
        self._database = database
        self._rewound: set[Partition] = set()
        self._schema: int | None = None

    async def rewound(self) -> frozenset[Partition]:
        """The assigned partitions that were rewound, now or before. Raises SchemaReplaced."""
        assigned = self._source.assignment()
        async with self._database.connection() as connection:
            await self._refuse_another_schema(connection)
            for partition in assigned - self._rewound:
                if not await connection.fetchval(_IS_REWOUND, self._group, *partition):
                    self._source.seek(partition, 0)
                    if not await self._source.commit({partition: 0}):
                        continue
                    await connection.execute(_REWOUND, self._group, *partition)
                self._rewound.add(partition)
        return assigned & self._rewound

    async def _refuse_another_schema(self, connection: asyncpg.Connection) -> None:
        """Another replica may have dropped and migrated the schema since this process started."""
        found = await connection.fetchval(_SCHEMA)
        if found is None or self._schema not in (None, found):
            raise SchemaReplaced("the schema was dropped: a new process reads from the start")
        self._schema = found
