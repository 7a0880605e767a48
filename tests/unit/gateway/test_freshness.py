"""How old the read model is, from what was seen of its partitions."""

from hypothesis import given
from hypothesis import strategies as st

from services.gateway.core.freshness import LOOK_HOLDS_SECONDS, Freshness, PartitionState, look

START = Freshness(looked_at=1000.0, fresh_at=1000.0)
DONE = PartitionState(position=7, end=7, handled_at=100.0)


def behind(position: int | None, end: int, handled_at: float | None = None) -> PartitionState:
    return PartitionState(position, end, handled_at)


def test_a_model_without_lag_has_no_age_however_old_its_last_event_is() -> None:
    seen = look(START, {"a": DONE, "b": behind(0, 0)}, 1001.0)
    assert (seen.lag_records, seen.age_seconds(1002.0)) == (0, 0.0)


def test_a_record_that_just_came_makes_a_quiet_partition_no_older_than_the_last_look() -> None:
    seen = look(look(START, {"a": DONE}, 5000.0), {"a": behind(7, 8, 100.0)}, 5001.0)
    assert (seen.lag_records, seen.age_seconds(5001.5)) == (1, 1.5)


def test_a_partition_that_always_has_some_lag_is_as_old_as_its_last_handled_record() -> None:
    seen = look(START, {"a": DONE}, 1001.0)
    for second in range(60):
        now = 1002.0 + second
        seen = look(seen, {"a": behind(7 + second, 9 + second, now - 1.5)}, now)
    assert seen.age_seconds(1061.0) == 1.5


def test_the_slowest_partition_counts() -> None:
    seen = look(START, {"a": DONE, "b": DONE}, 2000.0)
    seen = look(seen, {"a": behind(7, 9, 2004.0), "b": behind(7, 300)}, 2005.0)
    assert (seen.lag_records, seen.age_seconds(2005.0)) == (295, 5.0)


def test_after_a_start_the_age_is_that_of_the_first_records_handled() -> None:
    seen = look(START, {"a": behind(100, 9000, 400.0)}, 1002.0)
    assert seen.age_seconds(1002.0) == 602.0


def test_an_age_grows_while_it_cannot_be_measured() -> None:
    seen = look(START, {"a": DONE}, 1001.0)
    assert seen.age_seconds(1001.0 + LOOK_HOLDS_SECONDS) == 0.0
    assert seen.age_seconds(1061.0) == 60.0


def test_a_process_that_reads_nothing_grows_old() -> None:
    seen = look(look(START, {"a": DONE}, 1001.0), {}, 1031.0)
    assert seen.age_seconds(1031.0) == 30.0


def test_a_position_that_is_not_known_is_not_taken_for_handled() -> None:
    assert look(START, {"a": behind(None, 5)}, 1004.0).age_seconds(1004.0) == 4.0


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1))
def test_an_age_is_never_negative_and_0_only_without_lag(places: list[tuple[int, int]]) -> None:
    seen, now = START, START.looked_at
    for position, end in places:
        now += 1.0
        seen = look(seen, {"a": behind(min(position, end), end, now + 5)}, now)
        assert (seen.lag_records == 0) == seen.is_current
        assert seen.age_seconds(now) >= 0.0


def test_a_partition_is_as_new_as_the_later_of_its_last_look_and_its_last_record() -> None:
    seen = look(START, {"a": DONE}, 1001.0)
    for handled_at, age in ((1003.0, 2.0), (900.0, 4.0), (None, 4.0), (1001.0, 4.0)):
        assert look(seen, {"a": behind(7, 8, handled_at)}, 1005.0).age_seconds(1005.0) == age
    assert look(START, {"a": behind(0, 8, 0.0)}, 1005.0).age_seconds(1005.0) == 1005.0
    assert look(START, {"a": behind(0, 1, 2000.0)}, 1005.0).age_seconds(1005.0) == 0.0


def test_an_age_is_out_of_date_just_after_a_measurement_holds() -> None:
    seen = look(START, {"a": DONE}, 1001.0)
    late = 1001.0 + LOOK_HOLDS_SECONDS + 0.5
    assert seen.age_seconds(late) == late - 1001.0
    assert look(seen, {}, 1002.0).age_seconds(1002.0) == 1.0


def test_lag_is_what_is_left_to_handle() -> None:
    seen = look(START, {"a": behind(None, 5), "b": behind(7, 8), "c": behind(9, 9)}, 1001.0)
    assert (seen.lag_records, seen.is_current) == (6, False)
