"""`replay all` on a real parked topic: one record that was too large to be kept stops nothing."""

import pytest

from services.runtime.bus import OutRecord, Record
from services.runtime.kafka import KafkaAccess, KafkaPublisher
from services.runtime.parking import MAX_KEPT_BYTES, Unfit, parked_headers, parked_id
from services.runtime.replay import replay
from services.runtime.topics import create_topics
from services.runtime.transaction import Origin
from tests.platform_service import read_topic


async def test_all_puts_back_what_was_kept_and_names_the_rest(
    kafka: KafkaAccess, topic_prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await create_topics(kafka, topic_prefix)
    source = topic_prefix + "events.jobs"
    large, *kept = (
        Record(source, 0, offset, 0, b"k", value, (("ce_id", b"1"),))
        for offset, value in enumerate([b"x" * (MAX_KEPT_BYTES + 1), b"one", b"two"])
    )
    headers = {it.offset: parked_headers("cost", Unfit(it, "empty", "")) for it in (large, *kept)}
    parked = [OutRecord(topic_prefix + "parked.cost", None, None, tuple(headers[large.offset]))]
    for it in kept * 2:  # a relay may send twice
        whole = (*it.headers, *headers[it.offset])
        parked.append(OutRecord(topic_prefix + "parked.cost", it.key, it.value, whole))
    publisher = KafkaPublisher(kafka, "tests")
    await publisher.publish(parked)
    await publisher.close()
    origin = Origin("/drivetrain/cost", topic_prefix)
    assert await replay(kafka, origin, "cost", "all") == 0
    back = await read_topic(kafka, source, at_least=2)
    assert [it.value for it in back] == [b"one", b"two"]
    # Parked anew they are the ones they were.
    assert [parked_id("cost", it) for it in back] == [parked_id("cost", it) for it in kept]
    said = capsys.readouterr()
    assert "2 replayed" in said.out
    assert f"{parked_id('cost', large)} is not replayed: too large" in said.err
    assert await replay(kafka, origin, "cost", parked_id("cost", large)) == 1
