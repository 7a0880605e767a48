"""Ranks of a program that knows nothing of each other: said once, and only then."""

import socket

import pytest

from drivetrain.pod.alone import SECONDS, Alone, listens
from tests.unit.trainer.test_ranks import pod_spec


def never(port: int) -> bool:
    return False


def test_it_is_said_once_after_a_while() -> None:
    alone = Alone(pod_spec(), 0.0, never)
    assert alone.look(SECONDS - 1) == ""
    assert "this program runs 2 times" in alone.look(SECONDS)
    assert alone.look(SECONDS + 1) == ""


def test_a_short_program_hears_it_at_its_end() -> None:
    alone = Alone(pod_spec(), 0.0, never)
    assert "this program runs 2 times" in alone.look(1.0, have_succeeded=True)


@pytest.mark.parametrize("one", [{"world_size": 1, "num_ranks": 1}, {"first_rank": 2}])
def test_one_rank_and_other_pods_are_silent(one: dict[str, int]) -> None:
    assert Alone(pod_spec(**one), 0.0, never).look(SECONDS) == ""


def test_ranks_that_use_the_package_or_have_met_are_silent() -> None:
    ours = Alone(pod_spec(), 0.0, never)
    ours.is_together()
    met = [True]
    theirs = Alone(pod_spec(), 0.0, lambda port: met.pop() if met else False)
    assert [one.look(at) for one in (ours, theirs) for at in (0.0, SECONDS)] == [""] * 4


@pytest.mark.enable_socket
def test_a_port_that_listens_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert listens(port)
    assert not listens(port)
