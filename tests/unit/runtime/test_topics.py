"""How long the broker keeps what a topic declares."""

import pytest

from drivetrain_schemas.topics import FOR_EVER, TOPICS, Topic
from services.runtime.topics import new_topic


@pytest.mark.parametrize("topic", TOPICS, ids=lambda topic: topic.name)
def test_records_are_deleted_soon_after_the_time_for_which_they_are_kept(topic: Topic) -> None:
    """The broker deletes whole segments, once their newest record is too old."""
    configs = new_topic(topic, "drivetrain.", 1).topic_configs
    assert int(configs["retention.ms"]) == topic.retention_ms
    if topic.retention_ms != FOR_EVER:
        assert int(configs["segment.ms"]) <= topic.retention_ms / 4
