"""Runs use the ports for a rendezvous in turn, and prefer silent ones that no run holds."""

from services.scheduler.core.ports import (
    FIRST_PORT,
    NUM_PORTS,
    NUM_SPARE,
    candidates,
    choose,
    first_port,
    next_port,
)

LAST = FIRST_PORT + NUM_PORTS - 1


def test_ports_are_used_in_turn_and_start_again_after_the_last():
    assert (next_port(FIRST_PORT), next_port(LAST)) == (FIRST_PORT + 1, FIRST_PORT)
    assert [first_port(number) for number in (0, 1, NUM_PORTS - 1, NUM_PORTS)] == [
        FIRST_PORT,
        FIRST_PORT + 1,
        LAST,
        FIRST_PORT,
    ]


def test_some_more_are_looked_at_than_are_needed_and_none_that_a_run_holds():
    found = candidates(LAST, {FIRST_PORT, FIRST_PORT + 2}, 2)
    assert len(found) == 2 + NUM_SPARE
    assert found[:4] == [LAST, FIRST_PORT + 1, FIRST_PORT + 3, FIRST_PORT + 4]


def test_silent_ports_go_first_and_without_enough_the_others_follow():
    start = FIRST_PORT
    silent = {start + 3, start + 1}
    assert choose(start, (), silent, 1) == [start + 1]
    assert choose(start, (), silent, 3) == [start + 1, start + 3, start]


def test_there_are_only_as_many_as_no_run_holds():
    held = set(range(FIRST_PORT, FIRST_PORT + NUM_PORTS)) - {FIRST_PORT + 7}
    assert choose(LAST, held, (), 2) == [FIRST_PORT + 7]
