"""The object store is created by the first start of a data directory, and by none after it."""

from pathlib import Path

import pytest

from services.standalone.credentials import load_or_create
from services.standalone.home import Home
from services.standalone.store import store_id


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.create()
    load_or_create(home.credentials)
    return home


def start(home: Home) -> str:
    return store_id(home, home.objects.as_uri(), None)


def test_the_first_start_creates_the_store_and_later_ones_know_it(home: Home) -> None:
    assert not home.objects.exists()
    first = start(home)
    assert home.objects.is_dir()
    home.create()
    assert start(home) == first


def test_a_store_that_was_moved_is_not_created_again(home: Home) -> None:
    first = start(home)
    home.objects.rename(home.root.parent / "moved")
    home.create()
    assert start(home) == first
    assert not home.objects.exists()


def test_an_empty_store_in_its_place_gets_no_marker(home: Home) -> None:
    first = start(home)
    home.objects.rename(home.root.parent / "moved")
    home.objects.mkdir()
    assert start(home) == first
    assert list(home.objects.iterdir()) == []


def test_a_start_that_broke_off_before_its_record_finds_the_marker(home: Home) -> None:
    first = start(home)
    home.store.unlink()
    assert start(home) == first


def test_the_store_of_a_data_directory_that_was_moved_is_the_same_one(home: Home) -> None:
    first = start(home)
    moved = Home(home.root.with_name("elsewhere"))
    home.root.rename(moved.root)
    moved.objects.rename(moved.root / "hidden")
    assert start(moved) == first
    assert not moved.objects.exists()


def test_another_store_is_initialised_when_it_is_first_named(home: Home, tmp_path: Path) -> None:
    own = start(home)
    url = (tmp_path / "outside").as_uri()
    outside = store_id(home, url, None)
    assert outside != own
    assert store_id(home, url, None) == outside
    assert start(home) == own


def test_a_store_that_cannot_be_created_is_named(home: Home) -> None:
    home.objects.write_text("in the way")
    with pytest.raises(RuntimeError, match="object store"):
        start(home)


@pytest.mark.parametrize(
    "damage", ["", "[1]", "null", '{"in the data directory": 5}', '{"another": ["a"]}']
)
def test_a_damaged_record_is_named_and_left_as_it_is(home: Home, damage: str) -> None:
    start(home)
    home.store.write_text(damage)
    with pytest.raises(RuntimeError, match=r"store\.json is damaged"):
        start(home)
    assert home.store.read_text() == damage
