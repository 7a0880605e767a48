"""The end of a shim: `exit.json` is written, whatever the disk says at first."""

import asyncio
import errno
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drivetrain.pod import shim
from drivetrain_schemas.ids import job_id_for, pod_id_for
from drivetrain_schemas.pods import PodExit

END = PodExit(
    pod_id=pod_id_for(job_id_for("default", "r1"), 1, 0),
    outcome="succeeded",
    ranks=(),
    ended_at=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Errors that the next writes to the disk meet; nobody sleeps."""
    errors: list[int] = []
    real = os.fsync

    def sync(descriptor: int) -> None:
        if errors:
            number = errors.pop(0)
            raise OSError(number, os.strerror(number))
        real(descriptor)

    async def no_sleep(seconds: float) -> None:
        return None

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(asyncio, "sleep", no_sleep)
    return errors


async def test_the_end_is_written_once_the_full_disk_has_room(tmp_path: Path, syncs: list[int]):
    syncs += [errno.ENOSPC] * 3
    await shim.write_end_once_there_is_room(tmp_path, END)
    assert PodExit.model_validate_json((tmp_path / "exit.json").read_text()) == END
    assert os.listdir(tmp_path) == ["exit.json"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO], ids=["still full", "broken"])
async def test_it_is_not_tried_for_ever(
    tmp_path: Path, syncs: list[int], monkeypatch: pytest.MonkeyPatch, number: int
):
    monkeypatch.setattr(shim, "NUM_TRIES_TO_WRITE", 3)
    syncs += [number] * 10
    with pytest.raises(OSError, match=os.strerror(number)):
        await shim.write_end_once_there_is_room(tmp_path, END)
    assert len(syncs) == (7 if number == errno.ENOSPC else 9)
    assert os.listdir(tmp_path) == []
