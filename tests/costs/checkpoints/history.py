"""A catalogue with a history: other jobs with their runs, checkpoints and what waits for them, and
deleted checkpoints of the job that a test is about. Of twenty checkpoints one is kept.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from drivetrain_schemas.base import Payload
from drivetrain_schemas.ids import run_id_for
from services.checkpoints import store_intents
from services.checkpoints.reports import report_handler
from services.checkpoints.store_intents import Kind
from services.checkpoints.worker import Worker
from services.runtime.database import Database
from services.runtime.object_store import ObjectInfo
from services.runtime.run_tokens import RunTokens
from tests.conftest import OpenDatabase
from tests.events import make_event, make_record
from tests.fakes import InMemoryObjectStore
from tests.handlers.checkpoints.builders import JOB, PREFIX
from tests.handlers.checkpoints.conftest import SETTINGS

# At least so many rows of each table that Postgres searches them by an index.
LEAST = 1000
# How old rows of the history are, by default: nothing is to be done about them.
FRESH = "interval '1 hour'"
OLD = "interval '1 year'"
# The first steps of the job are those that were deleted.
FIRST_STEP = 1_000_000

_HISTORY = """
insert into jobs (job_id, tenant_id, keep_last, keep_best)
select 'job_' || n, 'default', 3, 1 from {numbers};
insert into runs (run_id, job_id, attempt, fence, is_live, ended_at)
select 'run_' || n, 'job_' || n, 1, 1, false, now() - {age} from {numbers};
insert into checkpoints (checkpoint_id, job_id, manifest_key, run_id, attempt, fence, step, state,
    changed_at)
select 'deleted_' || n, '{job}', '{prefix}deleted_' || n, '{run}', 1, 1, n, 'deleted', now() - {age}
from {numbers};
insert into checkpoints (checkpoint_id, job_id, manifest_key, run_id, attempt, fence, step, state,
    changed_at)
select 'other_' || n, 'job_' || n, 'other_' || n, 'run_' || n, 1, 1, n, 'deleted', now() - {age}
from {numbers};
insert into checkpoints (checkpoint_id, job_id, manifest_key, run_id, attempt, fence, step, state,
    read_at)
select 'good_' || n, 'job_' || n, 'good_' || n, 'run_' || n, 1, 1, n, 'good', now() - {age}
from {numbers} where n % 10 = 0;
insert into intents (kind, job_id, subject, due_at)
select kind, 'job_' || n, 'good_' || n, now() + interval '1 hour'
from {numbers}, unnest(array['list', 'tidy', 'files']) as kind;
insert into read_shards select 'good_' || n, 'rank-0' from {numbers};
insert into unnamed_blobs (job_id, key) select 'job_' || n, 'blob' from {numbers};
"""
_LIVE_JOB = """
insert into jobs (job_id, tenant_id, keep_last, keep_best, highest_fence)
values ('{job}', 'default', {keep_last}, 1, 1);
insert into runs (run_id, job_id, attempt, fence, is_live) values ('{run}', '{job}', 1, 1, true);
"""


class Store(InMemoryObjectStore):
    """Lists at the cost of what it finds, as a real one does."""

    def __init__(self) -> None:
        super().__init__()
        self._keys: list[str] = []

    async def put(self, key: str, content: bytes) -> None:
        if key not in self._objects:
            insort(self._keys, key)
        await super().put(key, content)

    async def delete(self, key: str) -> None:
        if key in self._objects:
            del self._keys[bisect_left(self._keys, key)]
        await super().delete(key)

    async def list(self, prefix: str) -> Sequence[ObjectInfo]:
        found = []
        for key in self._keys[bisect_left(self._keys, prefix) :]:
            if not key.startswith(prefix):
                break
            found.append(ObjectInfo(key, len(self._objects[key])))
        return found


class Catalogue:
    """The service, and what it is to do."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.store = Store()
        self.worker = Worker(database, self.store, SETTINGS)
        self._take = report_handler(RunTokens(None), lambda: None)

    async def begin(self, job_id: str = JOB, keep_last: int = 3) -> None:
        run_id = run_id_for(job_id, 1)
        await self.execute(_LIVE_JOB.format(job=job_id, run=run_id, keep_last=keep_last))

    async def add_history(self, first: int, number: int, age: str = FRESH) -> None:
        numbers = f"generate_series({first}, {first + number - 1}) as n"
        of_job = {"job": JOB, "run": run_id_for(JOB, 1), "prefix": PREFIX}
        await self.execute(_HISTORY.format(numbers=numbers, age=age, **of_job))
        await self.execute("analyze")

    async def execute(self, statement: str) -> None:
        async with self.database.connection() as connection:
            await connection.execute(statement)

    async def work(self, kind: Kind, subject: str = "", job_id: str = JOB) -> None:
        """Do this, which is due now, and all else that is."""
        async with self.database.transaction() as tx:
            await store_intents.want(tx.connection, kind, job_id, subject)
        await self.worker.drain()

    async def report(self, *payloads: Payload) -> None:
        """Pods report this, and all that is due is done."""
        async with self.database.transaction() as tx:
            await self._take(tx, [make_record(make_event(payload)) for payload in payloads])
        await self.worker.drain()


async def catalogue(database: OpenDatabase, size: int = 0, keep_last: int = 3) -> Catalogue:
    """With a live run of `JOB`, which keeps so many checkpoints."""
    opened = Catalogue(await database("checkpoints"))
    await opened.begin(keep_last=keep_last)
    await opened.add_history(0, max(LEAST, size))
    return opened
