"""`python -m services.<name> replay ID`: put a parked record back on its topic, with its id.

`ID` is a parked id, or `all`. The parked topic is read to its end; nothing is removed from it.
"""

import sys

from drivetrain_schemas.topics import parked_topic
from services.runtime.bus import Partition, PublishFailed, Record
from services.runtime.errors import TemporaryError
from services.runtime.kafka import KafkaAccess, KafkaPublisher, KafkaSource
from services.runtime.parking import original, parked_fact
from services.runtime.transaction import Origin


async def replay(access: KafkaAccess, origin: Origin, service: str, wanted: str) -> int:
    """Returns the exit code: 0 when something was put back."""
    topic = origin.topic_prefix + parked_topic(service).name
    publisher = KafkaPublisher(access, f"{topic}.replay")
    try:
        parked = {parked_fact(record, "id"): record for record in await _read_all(access, topic)}
        chosen = parked if wanted == "all" else {wanted: parked[wanted]}
        await publisher.publish([original(record) for record in chosen.values()])
    except KeyError:
        print(f"no parked record {wanted}; there are {sorted(parked)}", file=sys.stderr)
        return 1
    except (TemporaryError, PublishFailed) as error:
        print(f"not replayed: {error}", file=sys.stderr)
        return 1
    finally:
        await publisher.close()
    print(f"{len(chosen)} replayed")
    return 0


async def _read_all(access: KafkaAccess, topic: str) -> list[Record]:
    group = f"{topic}.replay"
    source = KafkaSource(access, group, [topic], member=f"{group}.0", max_records=500)
    await source.start()
    try:
        records: list[Record] = []
        rewound: set[Partition] = set()
        while True:
            for partition in source.assignment() - rewound:
                source.seek(partition, 0)
                rewound.add(partition)
            batches = await source.poll(1.0)
            records += [record for batch in batches.values() for record in batch]
            ends = await source.end_offsets(source.assignment())
            positions = {item: await source.position(item) for item in rewound}
            if ends and all(positions.get(item, 0) >= end for item, end in ends.items()):
                return records
    finally:
        await source.stop()
