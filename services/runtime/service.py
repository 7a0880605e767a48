"""A service from its start to an orderly stop, in one TaskGroup.

Start: operations port, Postgres (waited for), migrations, relay, consumers, own tasks, read API.
Stop on SIGTERM or SIGINT: not ready -> consumers finish their records and commit the offsets ->
tasks end -> the outbox is drained -> everything is closed. A task that fails ends the process with
code 1 (70 for a stuck consumer); a supervisor restarts it.
"""

import asyncio
import contextlib
import gc
import json
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from drivetrain_schemas.topics import TOPICS, Topic
from services.runtime import logs, postgres_tls, tracing
from services.runtime.bus import Publisher
from services.runtime.callers import ReadGuard
from services.runtime.clock import Clock, SystemClock
from services.runtime.consumer import Consumer, FailedAtRecord
from services.runtime.database import Database
from services.runtime.errors import ConfigurationError, is_temporary, unavailable_part
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.kafka_source import KafkaSource
from services.runtime.object_store import ObjectStore
from services.runtime.operations import ASGIApp, operations_app, serve, server
from services.runtime.processing import (
    BatchHandler,
    BatchProcessor,
    EventBatchHandler,
    EventProcessor,
    HandlerTable,
    Processor,
    RefusalTable,
    topics_of,
)
from services.runtime.relay import Relay
from services.runtime.retention import Retention, Rule
from services.runtime.settings import Settings, from_process, masked
from services.runtime.stores import open_object_store
from services.runtime.transaction import Origin
from services.runtime.watchdog import Stuck, watch

log = logs.get()

EXIT_FAILED = 1
EXIT_CONFIGURATION = 2
EXIT_STUCK = 70
# Ended at a record whose position is recorded: the third such end parks it. A supervisor restarts
# the process and does not count this towards giving up (docs/architecture.md, rule 12).
EXIT_AT_RECORD = 71
LIVE_SECONDS = 120.0
MAX_POLL_RECORDS = 200

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Platform:
    """The live adapters, for a service's own tasks and its read API."""

    settings: Settings
    database: Database
    publisher: Publisher
    object_store: ObjectStore
    clock: Clock
    stopping: asyncio.Event
    consumers: list[Consumer] = field(default_factory=list)


Task = Callable[[Platform], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Service:
    """The parts of a service, as `build(settings)` in its wiring.py returns them."""

    name: str
    settings: Settings
    package: str
    handlers: HandlerTable = field(default_factory=dict)
    refusals: RefusalTable = field(default_factory=dict)
    # Handles the new events of one transaction, in order, instead of the handlers, whose keys still
    # define which types are read. Called again in the same transaction after a request that is
    # refused.
    handle_batch: EventBatchHandler | None = None
    streams: Mapping[Topic, BatchHandler] = field(default_factory=dict)
    tasks: tuple[Task, ...] = ()
    http: Callable[[Platform], ASGIApp] | None = None
    # True only for the gateway, which people call. Every other `http` is a read port behind a
    # token.
    http_guards_itself: bool = False
    # It can be rebuilt from its topics and handles every event on them.
    is_projection: bool = False
    # Rules for its own tables.
    retention: tuple[Rule, ...] = ()

    @property
    def origin(self) -> Origin:
        return Origin(f"/drivetrain/{self.name}", self.settings.topic_prefix)


def event_topics(service: Service) -> list[Topic]:
    """The topics of its handlers, and any other from which this service parks."""
    handled = topics_of({*service.handlers, *service.refusals})
    parks = {it for it in TOPICS if it.parked_by == service.name and it not in service.streams}
    return [topic for topic in TOPICS if topic in handled or topic in parks]


def main(settings_class: type[S], build: Callable[[S], Service]) -> None:
    """The command line of a service: serve, `rebuild`, `--print-config`."""
    arguments = sys.argv[1:]
    try:
        settings = from_process(settings_class)
        if arguments == ["--print-config"]:
            print(json.dumps(masked(settings), indent=2))
            return
        service = build(settings)
        logs.configure(service.name, settings.log_level)
        # What is imported stays: to look at it again would halt the event loop for 0.2 s each time.
        gc.freeze()
        if not arguments:
            code = asyncio.run(run(service))
        elif arguments == ["rebuild"]:
            code = asyncio.run(rebuild(service))
        else:
            print("usage: python -m services.<name> [rebuild | --print-config]")
            code = EXIT_CONFIGURATION
    except ConfigurationError as error:
        print(error, file=sys.stderr)
        code = EXIT_CONFIGURATION
    sys.exit(code)


async def rebuild(service: Service) -> int:
    """Drop a projection's schema; the next start reads every topic from offset 0.

    A running process of the service notices that its schema was replaced, and restarts by itself.
    """
    if not service.is_projection:
        print(
            f"{service.name} stores facts that no topic contains; "
            "only a service that is a projection can be rebuilt",
            file=sys.stderr,
        )
        return EXIT_CONFIGURATION
    dsn = service.settings.postgres_dsn.get_secret_value()
    database = Database(dsn, service.name, service.origin)
    try:
        connection = await database.dedicated_connection()
        try:
            await connection.execute(f'drop schema if exists "{service.name}" cascade')
        finally:
            await connection.close()
    except Exception as error:
        if not is_temporary(error):
            raise
        print(f"not rebuilt, Postgres cannot be used: {error!r}", file=sys.stderr)
        return EXIT_FAILED
    log.info("projection dropped", schema=service.name)
    return 0


async def run(service: Service) -> int:
    """Serve until a signal. Returns the exit code."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    code = 0
    tracing.start(service.name, os.environ)
    try:
        await Running(service, stopping).run()
    except* Stuck as stuck:
        log.error("consumer is stuck, the process exits", error=str(stuck.exceptions[0]))
        code = EXIT_STUCK
    except* ConfigurationError as wrong:
        log.error("invalid setting, the process exits", error=str(wrong.exceptions[0]))
        code = EXIT_CONFIGURATION
    except* FailedAtRecord:
        log.exception("a record cannot be handled, the process exits")
        code = EXIT_AT_RECORD
    except* Exception:
        log.exception("service failed, the process exits")
        code = EXIT_FAILED if code == EXIT_AT_RECORD else code or EXIT_FAILED
    await tracing.stop()
    return code


class Running:
    """One run of a service."""

    def __init__(self, service: Service, stopping: asyncio.Event) -> None:
        settings = service.settings
        if service.http and not service.http_guards_itself and settings.read_token is None:
            raise ConfigurationError(
                "DRIVETRAIN_READ_TOKEN is not set, but callers of the read port must send it: "
                "give this service and the gateway the same random value"
            )
        dsn = settings.postgres_dsn.get_secret_value()
        postgres_tls.check(dsn, os.environ)
        self._service = service
        self._access = KafkaAccess.of(settings)
        self._is_ready = False
        # What the start waits for.
        self._waits_for = ""
        self.platform = Platform(
            settings=settings,
            database=Database(dsn, service.name, service.origin),
            publisher=KafkaPublisher(self._access, f"{settings.topic_prefix}{service.name}"),
            object_store=open_object_store(
                settings.object_store_url,
                settings.object_store_endpoint_url,
                settings.object_store_id,
            ),
            clock=SystemClock(),
            stopping=stopping,
        )

    async def run(self) -> None:
        settings = self.platform.settings
        operations = server(
            operations_app(self._live, self._ready), settings.ops_host, settings.ops_port
        )
        operations_stop = asyncio.Event()
        async with asyncio.TaskGroup() as outer:
            outer.create_task(serve(operations, operations_stop))
            try:
                if await self._open_database():
                    await self._serve()
            finally:
                self._is_ready = False
                operations_stop.set()
                await self._close()

    async def _serve(self) -> None:
        platform = self.platform
        relay = Relay(platform.database, platform.publisher, platform.clock)
        retention = Retention(
            platform.database,
            platform.settings.topic_prefix,
            platform.clock,
            self._service.retention,
        )
        async with asyncio.TaskGroup() as background:
            tasks = [background.create_task(it.run()) for it in (relay, retention)]
            tasks += [background.create_task(self._own(task)) for task in self._service.tasks]
            consuming = self._start_consumers(background, tasks)
            if self._service.http is not None:
                await self._serve_http(background)
            self._is_ready = True
            log.info("service started")
            await platform.stopping.wait()
            self._is_ready = False
            log.info("service stops")
            await self._finish(consuming)
            for task in tasks:
                task.cancel()
        await self._drain(relay)

    async def _open_database(self) -> bool:
        """False when the service was stopped before Postgres answered."""
        platform = self.platform
        stopping = asyncio.create_task(platform.stopping.wait())
        while not platform.stopping.is_set():
            opening = asyncio.create_task(platform.database.open([self._service.package]))
            try:
                await asyncio.wait({opening, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if opening.done():
                    await opening
                    self._waits_for = ""
                    stopping.cancel()
                    return True
                opening.cancel()  # a migration may take long; it is rolled back
                await asyncio.wait({opening})
            except Exception as error:
                if not is_temporary(error):
                    raise
                self._waits_for = f"{unavailable_part(error)}: {error}"
                log.warning("service waits", part=unavailable_part(error), error=repr(error))
                await platform.clock.sleep(1.0)
        return False

    def _start_consumers(
        self, group: asyncio.TaskGroup, tasks: list[asyncio.Task[None]]
    ) -> list[asyncio.Task[None]]:
        service, platform = self._service, self.platform
        prefix = platform.settings.topic_prefix
        events = EventProcessor(
            service.name,
            prefix,
            service.handlers,
            service.refusals,
            reads_all=service.is_projection,
            handle_batch=service.handle_batch,
        )
        batches = BatchProcessor(service.name, prefix, service.streams)
        plans: list[tuple[str, list[Topic], Processor]] = [
            (f"{prefix}{service.name}", event_topics(service), events),
            (f"{prefix}{service.name}.streams", list(service.streams), batches),
        ]
        consuming = []
        for name, topics, processor in plans:
            if not topics:
                continue
            source = KafkaSource(
                self._access,
                name,
                [prefix + topic.name for topic in topics],
                member=f"{name}.{platform.settings.replica}",
                max_records=max(processor.max_batch, MAX_POLL_RECORDS),
            )
            consumer = Consumer(name, source, processor, platform.database, platform.clock)
            self.platform.consumers.append(consumer)
            consuming.append(
                group.create_task(consumer.run(platform.stopping, from_start=service.is_projection))
            )
            tasks.append(group.create_task(watch(consumer, platform.clock)))
        return consuming

    async def _finish(self, consuming: list[asyncio.Task[None]]) -> None:
        """Handlers finish their records; those abandoned at the deadline are delivered again."""
        if not consuming:
            return
        _, late = await asyncio.wait(consuming, timeout=self.platform.settings.shutdown_seconds)
        for task in late:
            log.warning("handlers are abandoned at the deadline")
            task.cancel()

    async def _serve_http(self, group: asyncio.TaskGroup) -> None:
        assert self._service.http is not None
        settings = self.platform.settings
        app = self._service.http(self.platform)
        if not self._service.http_guards_itself:
            app = ReadGuard(app, settings)
        running = server(app, settings.http_host, settings.http_port)
        group.create_task(serve(running, self.platform.stopping))

    async def _own(self, task: Task) -> None:
        """A task of the service, which must not end before the service."""
        await task(self.platform)
        if not self.platform.stopping.is_set():
            raise RuntimeError(f"the task {task} ended unexpectedly")

    async def _drain(self, relay: Relay) -> None:
        try:
            async with asyncio.timeout(5.0):
                await relay.drain()
        except Exception as error:
            log.warning("outbox is left for the next start", error=repr(error))

    async def _close(self) -> None:
        with contextlib.suppress(Exception):
            await self.platform.publisher.close()
        with contextlib.suppress(Exception):
            await asyncio.wait_for(self.platform.database.close(), 5.0)
        await self.platform.object_store.close()

    async def _live(self) -> str | None:
        now = self.platform.clock.monotonic()
        for consumer in self.platform.consumers:
            if now - consumer.last_moved > LIVE_SECONDS:
                return f"{consumer.group} has not moved for {now - consumer.last_moved:.0f} s"
        return None

    async def _ready(self) -> str | None:
        if not self._is_ready:
            return f"starting or stopping; {self._waits_for}".removesuffix("; ")
        if not await self.platform.database.is_writable():
            return "Postgres is not writable"
        for consumer in self.platform.consumers:
            if not consumer.source.assignment():
                problem = f"{consumer.group} has no partitions yet; {consumer.waits_for}"
                return problem.removesuffix("; ")
        return None
