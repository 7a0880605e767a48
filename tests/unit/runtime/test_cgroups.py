"""Where groups of processes are made, for each version and for containers."""

from pathlib import Path

import pytest

from services.runtime import cgroups

FIRST = "9:name=systemd:/\n8:pids:/\n4:memory:/user/one\n1:cpu,cpuacct:/\n0::/\n"


def tree(root: Path, *directories: str, enabled: str = "") -> Path:
    for directory in directories:
        (root / directory).mkdir(parents=True, exist_ok=True)
        if enabled:
            (root / directory / "cgroup.subtree_control").write_text(enabled)
    return root


def test_the_first_version_has_one_below_this_process_own_for_each(tmp_path: Path) -> None:
    root = tree(tmp_path, "memory/user/one", "pids")
    assert cgroups.places(FIRST, root) == [root / "memory/user/one", root / "pids"]


def test_a_container_sees_its_own_as_the_root(tmp_path: Path) -> None:
    root = tree(tmp_path, "memory", "pids")
    assert cgroups.places(FIRST, root) == [root / "memory", root / "pids"]


@pytest.mark.parametrize(
    ("own", "place"),
    [("0::/user.slice/one.scope\n", "user.slice"), ("0::/\n", "."), ("0::/../gone/one\n", ".")],
)
def test_the_second_version_has_one_beside_this_process_own(
    tmp_path: Path, own: str, place: str
) -> None:
    root = tree(tmp_path, ".", "user.slice", "user.slice/one.scope", enabled="cpu memory pids\n")
    assert [each.resolve() for each in cgroups.places(own, root)] == [(root / place).resolve()] * 2


def test_without_the_controllers_there_is_none(tmp_path: Path) -> None:
    root = tree(tmp_path, ".", "user.slice/one.scope", "user.slice", enabled="cpu pids\n")
    with pytest.raises(OSError, match="has no control of memory"):
        cgroups.places("0::/user.slice/one.scope\n", root)


def test_without_any_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="is not writable"):
        cgroups.places("", tmp_path / "nothing")
