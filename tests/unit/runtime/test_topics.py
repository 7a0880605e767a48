"""How long the broker keeps what a topic declares, and what is said where a topic differs."""

from dataclasses import replace

import pytest

from drivetrain_schemas.access import ACCESS, POD
from drivetrain_schemas.topics import FOR_EVER, SERVICES, TOPICS, Topic, parked_topic
from services.runtime.topic_differences import Found, Wanted, differences
from services.runtime.topics import table, wanted_topic


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_records_are_deleted_soon_after_the_time_for_which_they_are_kept(topic: Topic) -> None:
    """The broker deletes whole segments, once their newest record is too old."""
    configs = wanted_topic(topic, "drivetrain.", 1).configs
    assert int(configs["retention.ms"]) == topic.retention_ms
    if topic.retention_ms != FOR_EVER:
        assert int(configs["segment.ms"]) <= topic.retention_ms / 4


@pytest.mark.parametrize(
    "topic", [*ACCESS[POD].writes, *map(parked_topic, SERVICES)], ids=lambda topic: topic.name
)
def test_what_a_pod_can_cause_to_be_written_is_bounded_by_size(topic: Topic) -> None:
    configs = wanted_topic(topic, "drivetrain.", 1).configs
    assert topic.retention_ms != FOR_EVER
    assert 0 < int(configs["retention.bytes"]) == topic.retention_bytes <= 1024**3
    assert int(configs["segment.bytes"]) <= topic.retention_bytes / 4


WANTED = Wanted("drivetrain.commands.jobs", 4, 3, {"retention.ms": "1"}, True, False)
SAME = Found(4, 3, {"retention.ms": "1", "other": "x"}, is_empty=False)


def test_what_is_as_declared_does_not_differ() -> None:
    assert differences(WANTED, SAME) == ()
    assert table([]) == "All topics are as declared."


@pytest.mark.parametrize(
    ("changes", "found", "grows", "fix"),
    [
        ({}, {"is_empty": True}, True, "adds them"),
        ({}, {}, False, "wait until its records have been read and have expired"),
        ({"is_kept_for_ever": True}, {}, False, "a rebuild would read them in any order"),
        ({"is_keyed": False}, {}, True, "adds them"),
        ({}, {"num_partitions": 6}, False, "none is needed"),
    ],
    ids=["empty", "holds records", "is rebuilt from", "parked", "more than declared"],
)
def test_partitions_grow_only_where_the_order_of_a_key_stays(
    changes: dict[str, bool], found: dict[str, int], grows: bool, fix: str
) -> None:
    (row,) = differences(replace(WANTED, **changes), replace(SAME, **{"num_partitions": 2} | found))
    assert (row.setting, row.grows) == ("partitions", grows)
    assert fix in row.fix


def test_retention_and_replication_are_told_with_their_fix() -> None:
    rows = differences(WANTED, replace(SAME, replication_factor=1, configs={"retention.ms": "2"}))
    assert [(row.setting, row.found, row.wanted) for row in rows] == [
        ("replication factor", "1", "3"),
        ("retention.ms", "2", "1"),
    ]
    assert "--add-config retention.ms=1" in rows[1].fix
    shown = table(rows).splitlines()
    assert shown[0].split() == ["topic", "setting", "found", "wanted"]
    assert shown[3].split() == ["drivetrain.commands.jobs", "retention.ms", "2", "1"]
    assert shown[4].endswith(rows[1].fix)


def test_a_missing_topic_differs() -> None:
    (row,) = differences(WANTED, None)
    assert (row.found, row.wanted) == ("missing", "present")
