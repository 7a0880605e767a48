"""Names, order and validity of checkpoints."""

import hashlib
from datetime import UTC, datetime

import pytest

from drivetrain import manifests
from drivetrain_schemas.checkpoint_names import directory_name
from drivetrain_schemas.checkpoints import Manifest
from drivetrain_schemas.ids import job_id_for, run_id_for

JOB = job_id_for("default", "test")
DATA = {"rank-0.safetensors": b"weights", "rank-0.json": b"{}"}


def read(files):
    """A reader of these files, in two pieces each."""

    def pieces_of(key):
        data = files[key]
        return None if data is None else [data[:3], data[3:]]

    return pieces_of


def make_manifest() -> Manifest:
    return Manifest(
        job_id=JOB,
        run_id=run_id_for(JOB, 1),
        tenant_id="default",
        attempt=1,
        fence=7,
        step=50,
        world_size=1,
        shards=tuple(manifests.make_shard(key, data, 0) for key, data in DATA.items()),
        written_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_newest_is_the_highest_fence_then_step_then_save() -> None:
    names = [
        directory_name(2, 10, 1, 0xFFFF),
        directory_name(1, 900, 9, 0),
        directory_name(2, 10, 2, 0),
        directory_name(2, 9, 3, 0),
    ]
    found = [one.name for one in manifests.newest_first(f"{name}/manifest.json" for name in names)]
    assert found == [names[2], names[0], names[3], names[1]]


def test_a_save_without_a_manifest_does_not_count() -> None:
    whole, unfinished = (directory_name(1, step, 1, 5) for step in (10, 20))
    keys = [f"{whole}/manifest.json", f"{unfinished}/rank-0.json", "notes/manifest.json"]
    assert [one.name for one in manifests.newest_first(keys)] == [whole]
    assert manifests.highest_fence(keys) == 1
    assert manifests.highest_fence([]) == 0


def test_a_valid_checkpoint_has_no_flaw() -> None:
    assert manifests.first_flaw(make_manifest(), read(DATA)) is None


@pytest.mark.parametrize(
    ("changed", "want"),
    [
        pytest.param({"rank-0.json": None}, "shard_missing rank-0.json", id="missing"),
        pytest.param({"rank-0.json": b"{"}, "size_differs rank-0.json", id="truncated"),
        pytest.param(
            {"rank-0.safetensors": b"wEights"}, "hash_differs rank-0.safetensors", id="one bit"
        ),
    ],
)
def test_the_first_flaw_is_named(changed, want) -> None:
    assert manifests.first_flaw(make_manifest(), read(DATA | changed)) == want


@pytest.mark.parametrize("text", [None, b"", b"{}", b"\xff"])
def test_an_invalid_manifest_is_unreadable(text) -> None:
    assert manifests.first_flaw(manifests.read_manifest(text), read(DATA)) == "manifest_unreadable"


def test_a_shard_is_checked_by_size_and_hash() -> None:
    shard = manifests.make_shard("rank-3.json", b"abc", 3)
    assert (shard.size_bytes, shard.rank) == (3, 3)
    assert shard.sha256 == hashlib.sha256(b"abc").hexdigest()


def test_a_restarted_local_run_keeps_the_two_newest_of_the_run_before() -> None:
    old = [directory_name(1, step, 1, 5) for step in (98_000, 99_000, 99_500, 100_000)]
    new = [directory_name(2, step, 1, 6) for step in (10, 20, 30, 40)]
    keys = [f"{name}/manifest.json" for name in old + new]
    assert sorted(manifests.expendable(keys, keep_last=3)) == sorted(old[:2] + new[:1])
