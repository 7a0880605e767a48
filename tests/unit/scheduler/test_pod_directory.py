"""What a pod's program does to the directories above its own never stops the scheduler's look."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from drivetrain_schemas.ids import job_id_for, pod_id_for
from services.scheduler.core.pods import Sight
from services.scheduler.launchers.base import PodRef
from services.scheduler.launchers.directory import PodDirectory
from services.scheduler.launchers.local import LocalLauncher

JOB = job_id_for("default", "r1")
POD = PodRef(JOB, 1, pod_id_for(JOB, 1, 0))
ATTEMPT = Path(JOB, "1")


@pytest.fixture
def root() -> Iterator[Path]:
    """A root of a user whom permissions concern."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with tempfile.TemporaryDirectory() as directory:
            (Path(directory) / ATTEMPT / POD.pod_id).mkdir(parents=True)
            yield Path(directory)
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("closed", [ATTEMPT.parent, ATTEMPT], ids=["job", "attempt"])
def test_a_closed_directory_is_opened_again(root: Path, closed: Path):
    launcher = LocalLauncher(root, None)
    (root / closed).chmod(0)
    assert launcher._observe([POD])[POD.pod_id].sight is Sight.CREATED
    (root / closed).chmod(0)
    assert launcher._kill([POD]) == {POD.pod_id}
    assert launcher._observe([POD])[POD.pod_id].sight is Sight.DEAD


def test_a_pod_that_closed_its_own_directory_can_be_killed(root: Path):
    launcher = LocalLauncher(root, None)
    (root / ATTEMPT / POD.pod_id).chmod(0)
    assert launcher._kill([POD]) == {POD.pod_id}


def test_a_closed_root_says_nothing_about_a_pod(root: Path):
    launcher = LocalLauncher(root, None)
    root.chmod(0)
    with pytest.raises(PermissionError):
        launcher._observe([POD])
    with pytest.raises(PermissionError):
        launcher._kill([POD])
    root.chmod(0o700)


@pytest.mark.parametrize("name", [ATTEMPT.parent, ATTEMPT], ids=["job", "attempt"])
def test_a_link_without_end_is_no_directory(root: Path, name: Path):
    launcher = LocalLauncher(root, None)
    (root / name).rename(root / "moved")
    (root / name).symlink_to(name.name)
    assert launcher._observe([POD])[POD.pod_id].sight is Sight.ABSENT
    assert launcher._kill([POD]) == {POD.pod_id}


def test_a_shim_that_appears_during_the_look_is_not_taken_for_dead(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes its identity after the launcher looked for it, and before it decides."""
    launcher = LocalLauncher(root, None)
    identity = root / ATTEMPT / POD.pod_id / "identity.json"

    def appears(directory: PodDirectory) -> None:
        identity.write_text("{}")

    monkeypatch.setattr(PodDirectory, "exit", appears)
    assert launcher._observe([POD])[POD.pod_id].sight is Sight.CREATED
    assert launcher._observe([POD])[POD.pod_id].sight is Sight.DEAD
