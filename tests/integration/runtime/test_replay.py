"""`replay all` on a real parked topic: one record that was too large to be kept stops nothing."""

import pytest

from services.runtime import replay as replay_module
from services.runtime.bus import OutRecord, Record
from services.runtime.kafka import KafkaAccess, KafkaPublisher
from services.runtime.parking import MAX_KEPT_BYTES, InvalidRecord, parked_headers, parked_id
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
    headers = {
        it.offset: parked_headers("cost", InvalidRecord(it, "empty", "")) for it in (large, *kept)
    }
    parked = [OutRecord(topic_prefix + "parked.cost", None, None, tuple(headers[large.offset]))]
    for it in kept * 2:  # a relay may send twice
        whole = (*it.headers, *headers[it.offset])
        parked.append(OutRecord(topic_prefix + "parked.cost", it.key, it.value, whole))
    publisher = KafkaPublisher(kafka, "tests")
    await publisher.publish(parked)
    await publisher.close()
    origin = Origin("/drivetrain/cost", topic_prefix)
    assert await replay(kafka, origin, "cost", ["all"]) == 0
    back = await read_topic(kafka, source, at_least=2)
    assert [it.value for it in back] == [b"one", b"two"]
    # Parked again they have the ids that they had.
    assert [parked_id("cost", it) for it in back] == [parked_id("cost", it) for it in kept]
    said = capsys.readouterr()
    assert "2 replayed" in said.out
    assert f"{parked_id('cost', large)} is not replayed: too large" in said.err
    assert await replay(kafka, origin, "cost", [parked_id("cost", large)]) == 1


async def test_some_of_many_are_put_back_in_one_pass(
    kafka: KafkaAccess,
    topic_prefix: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(replay_module, "CHUNK_RECORDS", 7)
    await create_topics(kafka, topic_prefix)
    source = topic_prefix + "events.jobs"
    records = [Record(source, 0, number, 0, b"k", b"%d" % number) for number in range(100)]
    parked = [
        OutRecord(
            topic_prefix + "parked.cost",
            it.key,
            it.value,
            tuple(parked_headers("cost", InvalidRecord(it, "empty", ""))),
        )
        for it in records
    ]
    publisher = KafkaPublisher(kafka, "tests")
    await publisher.publish(parked)
    await publisher.close()
    wanted = [parked_id("cost", it) for it in records[::3]]
    origin = Origin("/drivetrain/cost", topic_prefix)
    assert await replay(kafka, origin, "cost", [*wanted, "parked_of_nobody"]) == 1
    said = capsys.readouterr()
    assert f"{len(wanted)} replayed" in said.out
    assert "holds no parked_of_nobody" in said.err
    back = await read_topic(kafka, source, at_least=len(wanted))
    assert [it.value for it in back] == [it.value for it in records[::3]]
