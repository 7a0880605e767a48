"""Which free slots a gang gets: all of it, on the fewest nodes, the tightest fit."""

import pytest

from services.scheduler.core.gang import Room, place_job
from services.scheduler.core.model import Slot


def room(**numbers: int) -> Room:
    free = {
        node_id: tuple(Slot(node_id, number) for number in range(count))
        for node_id, count in numbers.items()
    }
    return Room(free)


def counted(slots: tuple[Slot, ...]) -> dict[str, int]:
    node_ids = [slot.node_id for slot in slots]
    return {node_id: node_ids.count(node_id) for node_id in node_ids}


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
        (4, {"c": 3, "b": 3}, {"b": 3, "c": 1}),
    ],
)
def test_a_gang_gets_the_fewest_nodes_and_of_these_the_tightest(devices, nodes, want):
    placed = room(**nodes).place(devices)
    assert (placed and counted(placed)) == want
    assert placed is None or list(placed) == sorted(placed)


def test_what_was_taken_is_free_no_longer():
    left = room(a=3, b=2, c=2)
    for devices, want in ((1, {"b": 1}), (2, {"c": 2}), (4, {"a": 3, "b": 1})):
        placed = left.place(devices)
        assert placed is not None
        assert counted(placed) == want
        left.take(placed)
    assert (left.num_free(), left.place(1)) == (0, None)


def test_a_node_that_shrank_is_found_by_its_new_size_in_the_order_of_ids():
    left = room(a=2, b=3, c=2)
    left.take((Slot("b", 0),))
    assert left.num_free() == 6
    assert [left.place(devices) for devices in (1, 2)] == [
        (Slot("a", 0),),
        (Slot("a", 0), Slot("a", 1)),
    ]
    left.take((Slot("a", 0), Slot("a", 1)))
    assert left.place(2) == (Slot("b", 1), Slot("b", 2))


def test_of_device_types_the_one_on_fewest_nodes_is_taken_then_the_first_by_name():
    by_type = {"b": room(n1=1, n2=1), "c": room(n3=2), "a": room(n4=1, n5=1)}
    assert place_job(2, by_type) == ("c", (Slot("n3", 0), Slot("n3", 1)))
    assert place_job(1, by_type) == ("a", (Slot("n4", 0),))
    assert place_job(3, by_type) is None
    assert place_job(1, {}) is None
