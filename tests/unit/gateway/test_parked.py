"""What became of a parked record, whatever the order in which its history is read."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core.parked import (
    Decision,
    Handling,
    ParkedState,
    decided,
    parked_at_place,
)

START = datetime(2026, 11, 21, tzinfo=UTC)
Fact = str | Decision


def replayed(num_parkings: int, minute: int = 0) -> Decision:
    return Decision(num_parkings, START + timedelta(minutes=minute), ParkedState.REPLAYED)


def discarded(num_parkings: int, minute: int = 0) -> Decision:
    return Decision(num_parkings, START + timedelta(minutes=minute), ParkedState.DISCARDED)


def folded(*facts: Fact) -> Handling:
    handling = Handling()
    for fact in facts:
        if isinstance(fact, Decision):
            handling = decided(handling, fact)
        else:
            handling = parked_at_place(handling, fact)
    return handling


def test_a_parked_record_is_open_until_it_is_decided() -> None:
    assert folded("a/0/1").state is ParkedState.OPEN
    assert not folded("a/0/1").has_failed_again
    assert folded("a/0/1", replayed(1)).state is ParkedState.REPLAYED
    assert folded("a/0/1", discarded(1)).state is ParkedState.DISCARDED


def test_a_replay_that_fails_is_open_again_and_says_so() -> None:
    failed = folded("a/0/1", replayed(1), "a/0/9")
    assert failed.state is ParkedState.OPEN
    assert failed.has_failed_again
    assert folded("a/0/1", replayed(1), "a/0/9", replayed(2, 1)).state is ParkedState.REPLAYED


def test_a_discarded_record_that_was_replayed_and_failed_is_open_again() -> None:
    before = folded("a/0/1", discarded(1), replayed(1, 1))
    assert before.state is ParkedState.REPLAYED
    assert parked_at_place(before, "a/0/9").has_failed_again


def test_the_same_parking_twice_is_one() -> None:
    assert folded("a/0/1", replayed(1), "a/0/1").state is ParkedState.REPLAYED


facts = st.lists(
    st.one_of(
        st.sampled_from(["a/0/1", "a/0/2", "a/0/3"]),
        st.builds(
            Decision,
            st.integers(1, 3),
            st.integers(0, 5).map(lambda minute: START + timedelta(minutes=minute)),
            st.sampled_from([ParkedState.REPLAYED, ParkedState.DISCARDED]),
        ),
    ),
    max_size=8,
)


@given(history=facts, data=st.data())
def test_any_order_of_doubled_facts_ends_the_same(history: list[Fact], data: st.DataObject) -> None:
    doubled = history + data.draw(st.lists(st.sampled_from(history)) if history else st.just([]))
    assert folded(*data.draw(st.permutations(doubled))) == folded(*history)


def test_the_decision_about_most_parkings_counts_and_then_the_latest() -> None:
    both = ("a/0/1", "a/0/2")
    assert folded(*both, replayed(1, 5)).state is ParkedState.OPEN
    assert folded(*both, replayed(2), discarded(1, 5)).state is ParkedState.REPLAYED
    assert folded(*both, replayed(2), discarded(2, 1)).state is ParkedState.DISCARDED
    assert folded(*both, replayed(3)).state is ParkedState.REPLAYED
    assert folded("a/0/1", replayed(1, 5), replayed(1, 2)).replayed_at == replayed(1, 5).decided_at
    assert folded("a/0/1", discarded(1)).replayed_at is None
