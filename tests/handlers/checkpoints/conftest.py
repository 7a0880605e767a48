"""A catalogue: the service's handlers and worker on a real Postgres and a real directory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest_asyncio

from drivetrain_schemas.base import Payload
from drivetrain_schemas.topics import REPORTS
from services.checkpoints.handlers import handlers
from services.checkpoints.reports import report_handler
from services.checkpoints.settings import CheckpointsSettings
from services.checkpoints.worker import Worker
from services.runtime.database import Database
from services.runtime.directory_store import DirectoryStore
from services.runtime.errors import StoreError
from services.runtime.marked_store import MarkedStore
from services.runtime.object_store import Upload
from services.runtime.run_tokens import RunTokens
from services.runtime.stores import initialise
from tests.conftest import OpenDatabase
from tests.events import emitted, handle, handle_batch, make_event
from tests.handlers.checkpoints.builders import key_of, make_granted, make_queued

SETTINGS = CheckpointsSettings(kafka_bootstrap_servers="none:1", postgres_dsn="none")


class FailingStore(DirectoryStore):
    """A directory that can be made to fail the n-th deletion from now, and moved away."""

    fail_deletion_in: int | None = None

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._folder = root
        self.uploads: list[Upload] = []

    async def list_uploads(self, prefix: str) -> list[Upload]:
        return [upload for upload in self.uploads if upload.key.startswith(prefix)]

    async def abort(self, upload: Upload) -> None:
        self.uploads.remove(upload)

    def has_directory(self, prefix: str) -> bool:
        return (self._folder / prefix).exists()

    @contextmanager
    def in_the_way_of(self, prefix: str) -> Iterator[None]:
        """A file is where the directory was."""
        folder = self._folder / prefix
        hidden = folder.with_name("hidden")
        folder.rename(hidden)
        folder.write_text("in the way")
        yield
        folder.unlink()
        hidden.rename(folder)

    def move_away(self) -> None:
        self._folder.rename(self._folder.with_name("moved"))

    def move_back(self) -> None:
        self._folder.with_name("moved").rename(self._folder)

    async def delete(self, key: str) -> None:
        if self.fail_deletion_in is not None:
            self.fail_deletion_in -= 1
            if self.fail_deletion_in < 0:
                self.fail_deletion_in = None
                raise StoreError("the store does not answer")
        await super().delete(key)


class Catalogue:
    """Deliver events to it, let it work, return what it emits."""

    def __init__(self, database: Database, object_store: FailingStore) -> None:
        self.database = database
        self.object_store = object_store
        self._handlers = handlers(lambda: None)
        self._on_reports = report_handler(RunTokens(None), lambda: None)
        self._worker = Worker(database, MarkedStore(object_store, "test", None), SETTINGS)
        self._seen = 0

    async def deliver(self, *payloads: Payload, tenant_id: str = "default") -> list[Payload]:
        """Handle the events, then do all that is due. Returns what was emitted."""
        for payload in payloads:
            event = make_event(payload, tenant_id=tenant_id)
            if payload.kind.topic is REPORTS:
                await handle_batch(self.database, self._on_reports, event)
            else:
                await handle(self.database, self._handlers, event)
        return await self.work()

    async def work(self) -> list[Payload]:
        await self._worker.drain()
        return await self._news()

    async def wait(self) -> list[Payload]:
        """Half a minute and more passes: whatever was put off is due."""
        async with self.database.connection() as connection:
            await connection.execute("update intents set due_at = clock_timestamp()")
        return await self.work()

    async def want_reread(self) -> None:
        """What the worker does every half minute."""
        await self._worker.actions.reader.want_reread()

    async def states(self) -> dict[str, str]:
        """State by manifest key."""
        async with self.database.connection() as connection:
            rows = await connection.fetch("select manifest_key, state from checkpoints")
        return {row["manifest_key"]: row["state"] for row in rows}

    async def intents(self) -> set[str]:
        """Kinds of what is still to be done, but for the tidying minutes or hours later."""
        async with self.database.connection() as connection:
            rows = await connection.fetch(
                "select kind from intents where kind not in ('tidy', 'files')"
            )
        return {row["kind"] for row in rows}

    async def good_steps(self, fence: int = 1) -> list[int]:
        states = await self.states()
        return [step for step in range(1000) if states.get(key_of(step, fence)) == "good"]

    async def _news(self) -> list[Payload]:
        events = await emitted(self.database)
        news = [event.payload for event in events[self._seen :]]
        self._seen = len(events)
        return news


@pytest_asyncio.fixture(loop_scope="session")
async def catalogue(database: OpenDatabase, tmp_path: Path) -> Catalogue:
    root = tmp_path / "objects"
    await initialise(root.as_uri())
    return Catalogue(await database("checkpoints"), FailingStore(root))


@pytest_asyncio.fixture(loop_scope="session")
async def running(catalogue: Catalogue) -> Catalogue:
    """A job whose first run is alive."""
    await catalogue.deliver(make_queued(), make_granted())
    return catalogue
