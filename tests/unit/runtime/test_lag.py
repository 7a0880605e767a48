"""How long the oldest waiting record has been waiting, by the ends that were observed."""

from services.runtime.bus import Partition
from services.runtime.lag import Waits

A, B = Partition("drivetrain.a", 0), Partition("drivetrain.b", 0)


def test_nothing_waits_where_all_is_handled_however_old_the_last_record() -> None:
    waits = Waits()
    assert waits.observe({A: 5}, {A: 5}, now=0) == 0
    assert waits.observe({A: 5}, {A: 5}, now=9_000) == 0
    assert waits.observe({A: 5}, {A: 6}, now=9_005) == 0, "it came only now"


def test_the_wait_is_that_of_the_first_record_not_handled() -> None:
    waits = Waits()
    waits.observe({A: 0}, {A: 10}, now=0)
    waits.observe({A: 4}, {A: 20}, now=30)
    assert waits.observe({A: 4}, {A: 20}, now=40) == 40
    assert waits.observe({A: 10}, {A: 30}, now=50) == 20, "the first ten are handled"
    assert waits.observe({A: 30}, {A: 30}, now=60) == 0


def test_a_position_that_is_not_known_waits_too() -> None:
    waits = Waits()
    waits.observe({A: None}, {A: 1}, now=0)
    assert waits.observe({A: None}, {A: 1}, now=7) == 7


def test_the_longest_of_all_partitions_counts_and_a_partition_given_away_does_not() -> None:
    waits = Waits()
    waits.observe({A: 0, B: 3}, {A: 1, B: 3}, now=0)
    assert waits.observe({A: 0, B: 3}, {A: 1, B: 4}, now=10) == 10
    assert waits.observe({B: 3}, {A: 1, B: 4}, now=15) == 5
