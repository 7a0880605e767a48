"""Which free slots a gang gets: all of it, on the fewest nodes, the tightest fit."""

import pytest

from services.scheduler.core.gang import place, place_job
from services.scheduler.core.model import Slot


def free(**numbers: int) -> dict[str, tuple[Slot, ...]]:
    return {
        node_id: tuple(Slot(node_id, number) for number in range(count))
        for node_id, count in numbers.items()
    }


@pytest.mark.parametrize(
    ("devices", "nodes", "want"),
    [
        (3, {"a": 1, "b": 1}, None),
        (2, {"a": 1, "b": 1}, {"a": 1, "b": 1}),
        (2, {"a": 4, "b": 2, "c": 3}, {"b": 2}),
        (3, {"a": 4, "b": 2, "c": 3}, {"c": 3}),
        (1, {"b": 1, "a": 1}, {"a": 1}),
        (5, {"a": 4, "b": 1, "c": 3}, {"a": 4, "b": 1}),
        (6, {"a": 1, "b": 4, "c": 2, "d": 3}, {"b": 4, "c": 2}),
        (4, {"a": 0, "c": 3, "b": 3}, {"b": 3, "c": 1}),
    ],
)
def test_a_gang_gets_the_fewest_nodes_and_of_these_the_tightest(devices, nodes, want):
    placed = place(devices, free(**nodes))
    counts = None
    if placed is not None:
        node_ids = [slot.node_id for slot in placed]
        counts = {node_id: node_ids.count(node_id) for node_id in node_ids}
        assert list(placed) == sorted(placed)
    assert counts == want


def test_of_device_types_the_one_on_fewest_nodes_is_taken_then_the_first_by_name():
    by_type = {"b": free(n1=1, n2=1), "c": free(n3=2), "a": free(n4=1, n5=1)}
    assert place_job(2, by_type) == ("c", (Slot("n3", 0), Slot("n3", 1)))
    assert place_job(1, by_type) == ("a", (Slot("n4", 0),))
    assert place_job(3, by_type) is None
    assert place_job(1, {}) is None
