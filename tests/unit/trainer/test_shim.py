"""The end of a shim: `exit.json` is written, whatever the disk says at first."""

import asyncio
import errno
import os
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drivetrain.pod import memory, shim
from drivetrain.pod.notices import Notices
from drivetrain.pod.ranks import Rank
from drivetrain.pod.supervision import Supervision
from drivetrain_schemas.ids import job_id_for, pod_id_for
from drivetrain_schemas.pods import PodExit, RankExit
from tests.unit.trainer.test_ranks import pod_spec

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


@pytest.mark.parametrize(("num_killed", "want"), [(1, "out of memory"), (0, "(SIGKILL)")])
async def test_a_rank_that_the_kernel_killed_for_memory_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, num_killed: int, want: str
):
    (tmp_path / "log").mkdir()  # so that no file stays open
    monkeypatch.setattr(memory, "num_killed", lambda: 5)
    with socket.socket(socket.AF_UNIX) as listener:
        seen = Supervision(pod_spec(), Notices(tmp_path), [Rank(0, 2**22, 0)], listener)
        monkeypatch.setattr(memory, "num_killed", lambda: 5 + num_killed)
        seen._on_rank_end(RankExit(rank=0, signal=9))
        # A process that is killed later has nothing to do with it.
        monkeypatch.setattr(memory, "num_killed", lambda: 9)
        assert want in seen.explain(RankExit(rank=0, signal=9), world_size=1).reason
