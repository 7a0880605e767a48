"""`python -m services.<name> replay ID...`: put parked records back on their topics.

An `ID` is a parked id; `all` means every one. Events keep their ids. The parked topic is read once,
from its start to its present end, and nothing is removed from it. Records are put back in chunks as
they are read, so memory does not grow with their number. What was too large to be kept, or was
parked too long ago (`retention`), is reported and left out.
"""

import sys
from collections.abc import Collection, Sequence
from datetime import UTC, datetime

from drivetrain_schemas.topics import parked_topic
from services.runtime.bus import Outcome, OutRecord, Publisher, PublishFailed, Record, size_bytes
from services.runtime.errors import TemporaryError
from services.runtime.kafka import KafkaAccess, KafkaPublisher, read_to_end
from services.runtime.parking import NotReplayable, original, parked_fact
from services.runtime.transaction import Origin

CHUNK_RECORDS = 500
CHUNK_BYTES = 4_000_000


async def replay(
    access: KafkaAccess, origin: Origin, service: str, parked_ids: Collection[str]
) -> int:
    """Returns the exit code: 0 when something was put back and everything requested was found."""
    topic = origin.topic_prefix + parked_topic(service).name
    publisher = KafkaPublisher(access, f"{topic}.replay")
    run = _Replay(publisher, parked_ids, datetime.now(UTC))
    problem = ""
    try:
        async for batch in read_to_end(access, topic):
            await run.take(batch)
            if run.is_complete:
                break
        await run.flush()
    except TemporaryError as error:
        problem = str(error)
    finally:
        await publisher.close()
    return _report(run, topic, problem)


class _Replay:
    """One pass over a parked topic."""

    def __init__(self, publisher: Publisher, parked_ids: Collection[str], now: datetime) -> None:
        self._now = now
        self.missing = set(parked_ids) - {"all"}
        self.num_replayed = 0
        self._takes_all = "all" in parked_ids
        self._publisher = publisher
        self._seen: set[str] = set()
        self._chunk: list[tuple[str, OutRecord]] = []
        self._chunk_bytes = 0

    @property
    def is_complete(self) -> bool:
        return not self._takes_all and not self.missing

    async def take(self, batch: Sequence[Record]) -> None:
        for record in batch:
            parked_id = parked_fact(record, "id")
            is_wanted = self._takes_all or parked_id in self.missing
            if not is_wanted or parked_id in self._seen:  # a relay may send a record twice
                continue
            self._seen.add(parked_id)
            self.missing.discard(parked_id)
            try:
                put_back = original(record, self._now)
            except NotReplayable as error:
                print(f"{parked_id} is not replayed: {error}", file=sys.stderr)
                continue
            self._chunk.append((parked_id, put_back))
            self._chunk_bytes += size_bytes(put_back)
            if len(self._chunk) >= CHUNK_RECORDS or self._chunk_bytes >= CHUNK_BYTES:
                await self.flush()

    async def flush(self) -> None:
        """Raises TemporaryError where Kafka did not acknowledge."""
        chunk, self._chunk, self._chunk_bytes = self._chunk, [], 0
        try:
            await self._publisher.publish([record for _, record in chunk])
        except PublishFailed as failure:
            self._count(chunk, failure)
        else:
            self.num_replayed += len(chunk)

    def _count(self, chunk: Sequence[tuple[str, OutRecord]], failure: PublishFailed) -> None:
        outcomes = [delivery.outcome for delivery in failure.deliveries]
        self.num_replayed += outcomes.count(Outcome.ACKNOWLEDGED)
        if Outcome.UNKNOWN in outcomes:
            raise failure
        for (parked_id, _), delivery in zip(chunk, failure.deliveries, strict=True):
            if delivery.outcome is Outcome.REFUSED:
                print(f"{parked_id} is not replayed: {delivery.detail}", file=sys.stderr)


def _report(run: _Replay, topic: str, problem: str) -> int:
    print(f"{run.num_replayed} replayed")
    if problem:
        print(
            f"stopped: {problem}; replay again, records that were handled are dropped",
            file=sys.stderr,
        )
        return 1
    for parked_id in sorted(run.missing):
        print(f"{topic} holds no {parked_id}", file=sys.stderr)
    return 0 if run.num_replayed and not run.missing else 1
