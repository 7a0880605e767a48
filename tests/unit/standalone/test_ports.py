"""Which port each part gets."""

import json
import os
import socket
from pathlib import Path

import pytest

from services.standalone.ports import FIRST, LAST, PortTaken, choose_ports, free_port


def always_free(port: int) -> bool:
    return True


def test_chosen_ports_differ_and_are_used_again_at_the_next_start(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    first = choose_ports(file, ("kafka", "postgres", "gateway.http"), {}, is_free=always_free)
    second = choose_ports(file, ("kafka", "postgres", "gateway.http"), {}, is_free=always_free)
    assert len(set(first.values())) == 3
    assert second == first
    assert json.loads(file.read_text()) == first


def test_a_port_that_was_taken_meanwhile_is_replaced_and_the_others_stay(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    first = choose_ports(file, ("kafka", "postgres"), {}, is_free=always_free)
    second = choose_ports(
        file, ("kafka", "postgres"), {}, is_free=lambda port: port != first["kafka"]
    )
    assert second["postgres"] == first["postgres"]
    assert second["kafka"] != first["kafka"]


def test_a_fixed_port_wins_over_last_times_and_over_the_preferred_one(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    choose_ports(file, ("gateway.http",), {}, {"gateway.http": 8480}, is_free=always_free)
    chosen = choose_ports(
        file, ("gateway.http",), {"gateway.http": 9999}, {"gateway.http": 8480}, always_free
    )
    assert chosen == {"gateway.http": 9999}


def test_the_preferred_port_is_given_only_while_it_is_free(tmp_path: Path) -> None:
    names, preferred = ("gateway.http",), {"gateway.http": 8480}
    free = choose_ports(tmp_path / "a.json", names, {}, preferred, always_free)
    taken = choose_ports(tmp_path / "b.json", names, {}, preferred, lambda port: port != 8480)
    assert free == preferred
    assert taken["gateway.http"] != 8480


def test_a_fixed_port_in_use_is_refused_by_its_number_and_name(tmp_path: Path) -> None:
    with pytest.raises(PortTaken, match=r"9999.*kafka"):
        choose_ports(tmp_path / "ports.json", ("kafka",), {"kafka": 9999}, is_free=lambda _: False)


@pytest.mark.enable_socket
@pytest.mark.parametrize("address", ["127.0.0.1", "0.0.0.0"])
def test_the_program_that_has_the_port_and_the_option_are_named(
    tmp_path: Path, address: str
) -> None:
    with socket.create_server((address, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortTaken) as refusal:
            choose_ports(tmp_path / "ports.json", ("gateway.http",), {"gateway.http": port})
    command = Path("/proc/self/comm").read_text().strip()
    assert f"in use by {command} (pid {os.getpid()})" in str(refusal.value)
    assert "--gateway-port N" in str(refusal.value)


def test_a_holder_that_cannot_be_seen_is_left_out(tmp_path: Path) -> None:
    with pytest.raises(PortTaken, match=r"is in use\. End .* with --port kafka=N\.") as refusal:
        choose_ports(tmp_path / "ports.json", ("kafka",), {"kafka": 9}, is_free=lambda _: False)
    assert "pid" not in str(refusal.value)


def test_a_fixed_port_that_another_part_had_last_time_is_not_given_twice(tmp_path: Path) -> None:
    file = tmp_path / "ports.json"
    first = choose_ports(file, ("kafka", "postgres"), {}, is_free=always_free)
    second = choose_ports(
        file, ("kafka", "postgres"), {"kafka": first["postgres"]}, is_free=always_free
    )
    assert second["kafka"] == first["postgres"] != second["postgres"]


@pytest.mark.parametrize("damage", ["", "{", "[]", '{"kafka": "many"}'])
def test_a_damaged_file_is_ignored(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "ports.json"
    file.write_text(damage)
    assert set(choose_ports(file, ("kafka",), {}, is_free=always_free)) == {"kafka"}


@pytest.mark.enable_socket
@pytest.mark.parametrize("damage", ["92345", "65536", "0", "-1", "true", "1e4", '"9092"', "null"])
def test_a_damaged_port_counts_as_unknown_and_the_others_stay(tmp_path: Path, damage: str) -> None:
    file = tmp_path / "ports.json"
    kept = free_port()
    file.write_text(f'{{"kafka": {damage}, "postgres": {kept}}}')
    chosen = choose_ports(file, ("kafka", "postgres"), {})
    assert FIRST <= chosen["kafka"] <= LAST
    assert chosen["postgres"] == kept
    assert json.loads(file.read_text()) == chosen


def test_no_free_port_at_all_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="No free port"):
        free_port(is_free=lambda port: False)
