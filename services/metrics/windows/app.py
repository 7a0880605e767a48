"""The Faust application: reads `metrics` and `reports`, keeps the newest windows of every source.

Faust's known faults are kept out (docs/decisions/0014-windows.md): concurrency is 1, no web server,
no codec but raw bytes. A batch of records is acknowledged only after every change that it made to
the table is: `SourceTable.flush` waits for the broker. So no change is lost with the process, and
what is read again after a kill changes nothing.
"""

import asyncio
import os
import tempfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import faust
from faust.types import EventT

from drivetrain_schemas.topics import METRICS, REPORTS, WINDOWS
from services.metrics.settings import MetricsSettings
from services.metrics.windows import records
from services.metrics.windows.folding import observe
from services.metrics.windows.records import SourceState
from services.runtime import logs
from services.runtime.bus import Partition, Record
from services.runtime.kafka_access import KafkaAccess
from services.runtime.run_tokens import RunTokens

log = logs.get()

MAX_RECORDS = 1000
MAX_WAIT_SECONDS = 0.5
ACK_SECONDS = 60.0
# Sources without news for so long are forgotten, by the time of the newest record.
FORGET_SECONDS = 3600.0
FORGET_EVERY_SECONDS = 60.0
SESSION_SECONDS = 10.0
# Faust's own check takes the table's topic, which no agent reads, for a stream that stands still,
# and says so in an error a second for each partition, for ever. `progress` watches instead.
NEVER_SECONDS = 100 * 365 * 86_400.0


class SourceTable(faust.Table[bytes, bytes]):
    """A table whose changes go to the partition they are given, and are waited for."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._sent: list[Any] = []
        self._partition = 0

    def put(self, key: bytes, value: bytes, partition: int) -> None:
        self._partition = partition
        self[key] = value

    def forget(self, key: bytes, partition: int) -> None:
        self._partition = partition
        del self[key]

    def partition_for_key(self, key: Any) -> int:
        """Not that of Faust's current event, which is another one where several are taken."""
        return self._partition

    def send_changelog(self, *args: Any, **options: Any) -> Any:
        sent = super().send_changelog(*args, **options)
        self._sent.append(sent)
        return sent

    async def flush(self) -> None:
        """Until the broker has acknowledged every change. Raises TimeoutError."""
        sent, self._sent = self._sent, []
        async with asyncio.timeout(ACK_SECONDS):
            await asyncio.gather(*sent)


class Folder:
    """Folds records into the table."""

    def __init__(self, table: SourceTable, tokens: RunTokens, topics: Collection[str]) -> None:
        self.topics = topics
        # The next record of each partition.
        self.positions: dict[Partition, int] = {}
        self._table = table
        self._tokens = tokens
        self._newest_at = 0.0
        self._forgot_at = 0.0

    async def take(self, events: Sequence[EventT[Any]]) -> None:
        """Change the table by these records; each of its keys is written once."""
        changed: dict[bytes, tuple[SourceState, int]] = {}
        for event in events:
            record = _record(event)
            self._newest_at = max(self._newest_at, record.timestamp_ms / 1000)
            try:
                observation = observe(self._tokens, record)
                if observation is None:
                    continue
                known = changed.get(observation.key)
                before = known[0] if known else self._state(observation.key)
                after = observation.fold(before)
            except Exception:
                # A view: one record less is better than none after it.
                log.exception("a record is left out of the windows", topic=record.topic)
                continue
            if after is not before:
                changed[observation.key] = after, record.partition
        for key, (state, partition) in changed.items():
            self._table.put(key, records.write(state), partition)
        self._forget()
        await self._table.flush()
        for event in events:
            at = Partition(event.message.topic, event.message.partition)
            self.positions[at] = event.message.offset + 1

    def _state(self, key: bytes) -> SourceState | None:
        value = self._table.get(key)
        return None if value is None else records.read(value)

    def _forget(self) -> None:
        """Drop the sources of runs that ended long ago."""
        if self._newest_at - self._forgot_at < FORGET_EVERY_SECONDS:
            return
        self._forgot_at = self._newest_at
        ages = [(key, *records.read_age(value)) for key, value in self._table.items()]
        for key, partition, touched_at in ages:
            if touched_at < self._newest_at - FORGET_SECONDS:
                self._table.forget(key, partition)


def build(settings: MetricsSettings) -> tuple[faust.App, Folder]:
    """Raises ConfigurationError for files of TLS that cannot be used."""
    access = KafkaAccess.of(settings)
    prefix = settings.topic_prefix
    app = faust.App(
        f"{prefix}metrics.windows",
        broker=";".join(f"kafka://{server}" for server in access.bootstrap_servers.split(",")),
        broker_credentials=_credentials(access),
        broker_session_timeout=SESSION_SECONDS,
        # The same member after a restart: it does not wait for the end of its earlier session.
        consumer_group_instance_id=f"{prefix}metrics.windows.{settings.replica}",
        broker_commit_interval=1.0,
        consumer_auto_offset_reset="earliest",
        producer_acks=-1,
        processing_guarantee="at_least_once",
        stream_processing_timeout=NEVER_SECONDS,
        store="memory://",
        # Empty, but Faust makes it.
        datadir=Path(tempfile.gettempdir()) / f"drivetrain-windows-{os.geteuid()}",
        web_enabled=False,
        web_tables_enabled=False,
        topic_allow_declare=False,
        topic_disable_leader=True,
        Table=SourceTable,
    )
    table = app.Table(
        "windows",
        key_type=bytes,
        value_type=bytes,
        partitions=WINDOWS.partitions,
        changelog_topic=_topic(app, prefix + WINDOWS.name),
    )
    topics = (prefix + METRICS.name, prefix + REPORTS.name)
    assert isinstance(table, SourceTable)
    folder = Folder(table, RunTokens(settings.run_token_key), topics)
    source = _topic(app, *topics)

    @app.agent(source, concurrency=1, name="windows")
    async def fold(stream: Any) -> None:
        async for events in stream.take_events(MAX_RECORDS, within=MAX_WAIT_SECONDS):
            await folder.take(events)

    return app, folder


def _topic(app: faust.App, *names: str) -> Any:
    return app.topic(
        *names, key_serializer="raw", value_serializer="raw", key_type=bytes, value_type=bytes
    )


def _credentials(access: KafkaAccess) -> Any:
    options = access.security()
    context = options.get("ssl_context")
    if access.protocol.startswith("SASL_"):
        return faust.SASLCredentials(
            username=options["sasl_plain_username"],
            password=options["sasl_plain_password"],
            mechanism=options["sasl_mechanism"],
            ssl_context=context,
        )
    return None if context is None else faust.SSLCredentials(context=context)


def _record(event: EventT[Any]) -> Record:
    message = event.message
    return Record(
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=int(message.timestamp * 1000),
        key=message.key,
        value=message.value,
        headers=_headers(message.headers),
    )


def _headers(headers: Any) -> tuple[tuple[str, bytes | None], ...]:
    """As aiokafka gives them; Faust's type allows a mapping too."""
    return tuple(headers.items() if isinstance(headers, Mapping) else headers or ())
