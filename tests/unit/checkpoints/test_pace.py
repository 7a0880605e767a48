from hypothesis import given
from hypothesis import strategies as st

from services.checkpoints.core.pace import Pace


@given(
    st.lists(st.tuples(st.integers(0, 10_000_000), st.floats(0, 5)), max_size=50),
    st.floats(1_000, 1e9),
)
def test_no_more_is_read_than_the_rate_and_one_burst_allow(
    reads: list[tuple[int, float]], rate: float
) -> None:
    pace, now, taken = Pace(rate, burst_seconds=1.0, free_at=100.0), 100.0, 0
    for num_bytes, idle in reads:
        now += idle
        pace, wait = pace.take(num_bytes, now)
        now += wait
        assert taken <= rate * (now - 100.0 + 1.0) * (1 + 1e-9) + 1
        taken += num_bytes


def test_a_rate_that_is_used_up_is_waited_for() -> None:
    pace, first = Pace(100.0, burst_seconds=1.0, free_at=0.0).take(100, 10.0)
    pace, second = pace.take(100, 10.0)
    pace, third = pace.take(100, 10.0)
    assert (first, second, third) == (0.0, 0.0, 1.0)
