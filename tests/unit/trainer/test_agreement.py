"""How often ranks agree, and on what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.agreement import MAX_STEPS_BETWEEN, Wish, next_multiple, steps_between_looks


@pytest.mark.parametrize(
    ("previous", "seconds", "steps", "want"),
    [
        pytest.param(16, 1.6, 16, 5, id="0.1 s steps: a look every half second"),
        pytest.param(1, 30.0, 1, 1, id="slow steps: a look after each"),
        pytest.param(4, 0.001, 4, 8, id="quick steps: at most twice as many as before"),
        pytest.param(800, 0.001, 800, MAX_STEPS_BETWEEN, id="bounded"),
        pytest.param(7, 0.0, 3, 7, id="a stopped clock changes nothing"),
        pytest.param(7, 1.0, 0, 7, id="no steps change nothing"),
    ],
)
def test_steps_between_looks(previous, seconds, steps, want) -> None:
    assert steps_between_looks(previous, seconds, steps) == want


WISHES = st.builds(
    Wish,
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10**6),
    st.integers(1, MAX_STEPS_BETWEEN),
    st.booleans(),
    st.integers(0, 10**6),
    st.booleans(),
)


@given(st.lists(WISHES, min_size=1, max_size=4))
def test_all_ranks_do_what_one_rank_wants(wishes: list[Wish]) -> None:
    vectors = [wish.to_vector() for wish in wishes]
    agreed = Wish.from_vector([max(column) for column in zip(*vectors, strict=True)])
    assert agreed.stop == any(wish.stop for wish in wishes)
    assert agreed.logs_after == any(wish.logs_after for wish in wishes)
    assert agreed.save == any(wish.save for wish in wishes)
    assert agreed.save_best == any(wish.save_best for wish in wishes)
    assert agreed.evaluation == max(wish.evaluation for wish in wishes)
    assert agreed.is_saving == any(wish.is_saving for wish in wishes)
    assert agreed.failed_save == max(wish.failed_save for wish in wishes)


def test_next_multiple_is_always_ahead() -> None:
    assert [next_multiple(step, 10) for step in (0, 9, 10, 11)] == [10, 10, 20, 20]
