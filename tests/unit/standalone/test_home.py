"""The data directory: its lock, its secrets, and the error of a second start."""

import json
import os
import re
import shlex
from dataclasses import asdict
from pathlib import Path

import pytest

from drivetrain_schemas.topics import SERVICES
from services.standalone.credentials import Credentials, load_or_create
from services.standalone.home import Home, HomeHeld, NotOurs, holder_of, locked


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path / "home")
    made.create()
    return made


def test_a_second_start_names_the_process_that_holds_the_directory(home: Home) -> None:
    with locked(home):
        since = json.loads(home.lock.read_text())["since"]
        with pytest.raises(HomeHeld) as refusal, locked(home):
            pass
    assert f"pid {os.getpid()}" in str(refusal.value)
    assert since in str(refusal.value)


def test_the_lock_is_free_after_its_holder_has_gone(home: Home) -> None:
    with locked(home):
        holder = holder_of(home)
    assert holder is not None
    assert holder.identity.pid == os.getpid()
    assert holder_of(home) is None
    with locked(home):
        pass


def test_only_the_owner_may_enter_even_if_the_directory_was_open_before(tmp_path: Path) -> None:
    root = tmp_path / "open"
    root.mkdir(mode=0o755)
    Home(root).create()
    assert root.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["notes.txt", ".bashrc", "postgres"])
def test_a_directory_with_other_things_in_it_is_left_as_it_is(tmp_path: Path, name: str) -> None:
    """As root, `--home /tmp` would shut out everybody else."""
    root = tmp_path / "shared"
    root.mkdir(mode=0o755)
    for mine in ("lock", name):
        (root / mine).touch()
    with pytest.raises(NotOurs, match="new or an empty directory with --home") as refusal:
        Home(root).create()
    assert repr(name) in str(refusal.value)
    assert root.stat().st_mode & 0o777 == 0o755
    assert sorted(path.name for path in root.iterdir()) == sorted(["lock", name])


def test_a_hint_can_be_pasted_whatever_the_path(tmp_path: Path) -> None:
    root = tmp_path / "my own platform's"
    hint = str(HomeHeld(root, 1, "just now"))
    command = re.search("`(.*)`", hint)
    assert command
    assert shlex.split(command[1])[-1] == str(root)


def test_a_start_works_after_a_first_start_that_was_killed(home: Home) -> None:
    home.lock.touch()
    (home.root / ".credentials.json.17.partial").touch()
    home.create()
    load_or_create(home.credentials)
    (home.root / "notes.txt").touch()
    home.create()


def all_of(credentials: Credentials) -> list[str]:
    """Every secret, each as often as it occurs."""
    found = asdict(credentials)
    found.pop("kafka_username")
    users, roles = found.pop("kafka_users"), found.pop("postgres_roles")
    return [*found.values(), *users.values(), *roles.values()]


def test_secrets_differ_stay_the_same_and_are_readable_by_the_owner_only(home: Home) -> None:
    first = load_or_create(home.credentials)
    secrets = all_of(first)
    assert set(first.kafka_users) == {*SERVICES, "pod", "client"}
    assert set(first.postgres_roles) == {*SERVICES, "reader"}
    assert len(set(secrets)) == len(secrets)
    assert min(len(secret) for secret in secrets) >= 32
    assert load_or_create(home.credentials) == first
    assert home.credentials.stat().st_mode & 0o777 == 0o600


def test_no_secret_follows_from_the_token_of_the_api(home: Home, tmp_path: Path) -> None:
    """Two platforms under one token have nothing else in common."""
    other = Home(tmp_path / "other")
    other.create()
    first = load_or_create(home.credentials)
    values = asdict(load_or_create(other.credentials)) | {"api_token": first.api_token}
    other.credentials.write_text(json.dumps(values))
    second = load_or_create(other.credentials)
    assert {*all_of(first)} & {*all_of(second)} == {first.api_token}


def test_a_user_that_is_new_in_the_tables_gets_a_secret_and_the_rest_stays(home: Home) -> None:
    first = load_or_create(home.credentials)
    values = asdict(first)
    del values["kafka_users"]["hpo"], values["postgres_roles"]["hpo"]
    home.credentials.write_text(json.dumps(values))
    second = load_or_create(home.credentials)
    assert {*all_of(first)} - {*all_of(second)} == {
        first.kafka_users["hpo"],
        first.postgres_roles["hpo"],
    }
    assert len(all_of(second)) == len(all_of(first))
    assert load_or_create(home.credentials) == second


@pytest.mark.parametrize("content", ['{"kafka_username"', "[]", '{"kafka_username": "drivetrain"}'])
def test_damaged_secrets_are_never_replaced_silently(home: Home, content: str) -> None:
    home.credentials.write_text(content)
    with pytest.raises(RuntimeError, match="damaged"):
        load_or_create(home.credentials)
    assert home.credentials.read_text() == content


@pytest.mark.parametrize("name", ["api_token", "kafka_users", "postgres_roles"])
def test_a_secret_that_is_no_text_is_damage_and_is_not_shown(home: Home, name: str) -> None:
    values = asdict(load_or_create(home.credentials))
    values[name] = {"hpo": 7, "cost": "secret"} if isinstance(values[name], dict) else 7
    home.credentials.write_text(json.dumps(values))
    with pytest.raises(RuntimeError, match="damaged") as refusal:
        load_or_create(home.credentials)
    assert not {*all_of(Credentials(**values)), "secret"} & {
        *re.findall(r"[\w-]+", str(refusal.value))
    }
    assert json.loads(home.credentials.read_text()) == values


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\xff\xfe\xff",
        b"null",
        b"[]",
        b'{"pid": 1}',
        b'{"pid": "1", "start_ticks": 1, "boot_id": "", "since": ""}',
        b'{"pid": 1, "start_ticks": 1, "boot_id": "", "since": 1}',
    ],
)
def test_a_damaged_lock_still_holds_and_names_nobody(home: Home, damage: bytes) -> None:
    with locked(home):
        home.lock.write_bytes(damage)
        assert holder_of(home) is None
        with pytest.raises(HomeHeld, match="pid None, running since just now"), locked(home):
            pass
    with locked(home):
        assert holder_of(home) is not None
