"""Which rows of the outbox may be sent, and by which row a held key is tried again."""

from services.runtime.flow import RETRY_SECONDS, Flow, Key

A, B = Key("events.jobs", b"a"), Key("events.jobs", b"b")


def held(*rows: tuple[Key, int]) -> Flow:
    flow = Flow()
    flow.send([key for key, _ in rows], 0)
    for key, row_id in rows:
        flow.settle(key, 0)
        flow.hold(key, row_id, now=0.0)
    return flow


def test_a_held_key_is_due_by_its_first_row() -> None:
    flow = held((A, 5), (B, 6), (A, 7), (A, 3))
    assert flow.due(0.0) == {}
    assert flow.due(RETRY_SECONDS) == {A: 3, B: 6}


def test_after_its_first_row_passed_a_key_is_held_by_a_later_one() -> None:
    flow = held((A, 3))
    flow.release({A}, now=1.0)
    assert flow.num_held == 0
    flow.hold(A, 7, now=1.0)
    assert flow.due(1.0 + RETRY_SECONDS) == {A: 7}


def test_one_that_passes_makes_all_others_due() -> None:
    flow = held((A, 3), (B, 4))
    flow.release({A}, now=0.1)
    assert flow.due(0.1) == {B: 4}


def test_a_held_key_waits_while_it_is_tried() -> None:
    flow = held((A, 3), (B, 4))
    flow.send([A], 0)
    assert flow.due(RETRY_SECONDS) == {}
    assert set(flow.excluded()) == {A, B}
