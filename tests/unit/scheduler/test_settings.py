"""What the settings refuse before anything is granted by them."""

import pytest
from pydantic import ValidationError

from services.scheduler.settings import SchedulerSettings

GPU = {"device_type": "nvidia-h200"}


def make_settings(*nodes: dict) -> SchedulerSettings:
    facts = {"kafka_bootstrap_servers": "nowhere:1", "postgres_dsn": "postgresql://nowhere"}
    return SchedulerSettings.model_validate({**facts, "nodes": nodes})


OVERLAPPING = {
    "no first_device": ({"node_id": "a", "slots": 1, **GPU}, {"node_id": "b", "slots": 1, **GPU}),
    "the last is the next one's first": (
        {"node_id": "a", "slots": 3, **GPU},
        {"node_id": "b", "slots": 2, "first_device": 2, **GPU},
    ),
    "of two types": (
        {"node_id": "a", "slots": 2, "device_type": "nvidia-a100"},
        {"node_id": "b", "slots": 2, "first_device": 1, **GPU},
    ),
}


@pytest.mark.parametrize("nodes", OVERLAPPING.values(), ids=OVERLAPPING.keys())
def test_a_device_belongs_to_one_node(nodes):
    with pytest.raises(ValidationError, match="first_device"):
        make_settings(*nodes)


def test_devices_side_by_side_and_shared_cpus_are_fine():
    make_settings(
        {"node_id": "a", "slots": 2, **GPU},
        {"node_id": "b", "slots": 2, "first_device": 2, **GPU},
        {"node_id": "c", "slots": 8},
        {"node_id": "d", "slots": 8},
    )
