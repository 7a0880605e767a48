"""`python -m services.<name> replay ID`: put a parked record back on its topic, with its id.

`ID` is a parked id, or `all`. The parked topic is read to its end; nothing is removed from it. What
was too large to be kept is named, and the others are put back.
"""

import sys
from collections.abc import Mapping

from drivetrain_schemas.topics import parked_topic
from services.runtime.bus import OutRecord, Partition, Record
from services.runtime.errors import TemporaryError
from services.runtime.kafka import KafkaAccess, KafkaPublisher, KafkaSource
from services.runtime.parking import NotKept, original, parked_fact
from services.runtime.transaction import Origin


async def replay(access: KafkaAccess, origin: Origin, service: str, wanted: str) -> int:
    """Returns the exit code: 0 when something was put back."""
    topic = origin.topic_prefix + parked_topic(service).name
    publisher = KafkaPublisher(access, f"{topic}.replay")
    try:
        chosen = await _read(access, topic, wanted)
        if not chosen:
            print(f"{topic} holds no {wanted}", file=sys.stderr)
            return 1
        kept = _kept(chosen)
        await publisher.publish(kept)
    except TemporaryError as error:
        print(f"not replayed: {error}", file=sys.stderr)
        return 1
    finally:
        await publisher.close()
    print(f"{len(kept)} replayed")
    return 0 if kept else 1


def _kept(chosen: Mapping[str, Record]) -> list[OutRecord]:
    kept = []
    for name, record in chosen.items():
        try:
            kept.append(original(record))
        except NotKept as error:
            print(f"{name} is not replayed: {error}", file=sys.stderr)
    return kept


async def _read(access: KafkaAccess, topic: str, wanted: str) -> dict[str, Record]:
    """The parked records of this id, or all, by id: one parked twice comes once."""
    group = f"{topic}.replay"
    source = KafkaSource(access, group, [topic], member=f"{group}.0", max_records=500)
    await source.start()
    found: dict[str, Record] = {}
    rewound: set[Partition] = set()
    try:
        while True:
            for partition in source.assignment() - rewound:
                source.seek(partition, 0)
                rewound.add(partition)
            for batch in (await source.poll(1.0)).values():
                records = ((parked_fact(record, "id"), record) for record in batch)
                found |= {name: record for name, record in records if wanted in (name, "all")}
            ends = await source.end_offsets()
            positions = {item: await source.position(item) for item in rewound}
            if ends and all((positions.get(item) or 0) >= end for item, end in ends.items()):
                return found
    finally:
        await source.stop()
