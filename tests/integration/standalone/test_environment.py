"""What `make` needs is checked before anything is built, and each refusal names the fix."""

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GOOD_PYTHON = 'case "$1" in --version) echo "Python 3.12.0";; *) echo "built by $0";; esac'
OLD_PYTHON = 'case "$1" in --version) echo "Python 3.9.0";; -c) exit 1;; esac'
NO_VENV = 'case "$*" in *ensurepip*) exit 1;; --version) echo "Python 3.12.0";; esac'
LOCKED = ("requirements.lock", "schemas/pyproject.toml", "trainer/pyproject.toml")


class Clone:
    """A clone with nothing in it but what the environment is built from, on a machine of stubs."""

    def __init__(self, root: Path) -> None:
        self.root = root / "clone"
        self.commands = root / "bin"
        self.commands.mkdir()
        for name in ("Makefile", "scripts/environment"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.root / name)
        for name in LOCKED:
            (self.root / name).parent.mkdir(exist_ok=True)
            (self.root / name).write_text(f"{name}\n")
        for name in ("python3", "python3.11", "python3.12", "python3.13"):
            self.put(name, OLD_PYTHON)
        self.put("uname", "echo Linux")
        self.free(100_000)

    def put(self, name: str, script: str) -> Path:
        path = self.commands / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    def free(self, megabytes: int) -> None:
        self.put("df", f"echo title; echo x x x {megabytes}")

    def build(self, **variables: str) -> "subprocess.CompletedProcess[str]":
        path = f"{self.commands}:/usr/bin:/bin"
        return subprocess.run(
            ["make", "environment"], cwd=self.root, env={"PATH": path, **variables},
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def refusal(self, **variables: str) -> str:
        done = self.build(**variables)
        assert done.returncode != 0, done.stdout
        assert "building" not in done.stdout
        assert not (self.root / ".venv/bin").exists()
        return done.stderr


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    return Clone(tmp_path)


def test_without_a_usable_python_the_error_names_what_to_install(clone: Clone) -> None:
    printed = clone.refusal()
    assert "Python 3.11.4 or newer is missing" in printed
    assert "apt-get install python3" in printed
    assert "PYTHON=/path/to/python make" in printed


def test_the_named_python_is_the_one_that_builds(clone: Clone) -> None:
    named = clone.put("my own python", GOOD_PYTHON)
    assert f"built by {named}" in clone.build(PYTHON=str(named)).stdout


def test_a_named_python_that_is_too_old_is_refused_not_replaced(clone: Clone) -> None:
    clone.put("python3.12", GOOD_PYTHON)
    old = clone.put("old-python", OLD_PYTHON)
    assert f"{old} cannot be used" in clone.refusal(PYTHON=str(old))


def test_a_python_without_venv_is_refused(clone: Clone) -> None:
    clone.put("python3.12", NO_VENV)
    printed = clone.refusal()
    assert "the venv module of Python 3.12.0 is missing: apt-get install python3-venv" in printed


def test_another_operating_system_is_refused(clone: Clone) -> None:
    clone.put("python3.12", GOOD_PYTHON)
    clone.put("uname", "echo Darwin")
    assert "Linux is required" in clone.refusal()


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_full_disk_is_reported_also_where_a_build_was_interrupted(
    clone: Clone, is_begun: bool
) -> None:
    clone.put("python3.12", GOOD_PYTHON)
    clone.free(500)
    if is_begun:
        (clone.root / ".venv/lib").mkdir(parents=True)
    printed = clone.refusal()
    assert "MB of disk space are required here" in printed
    assert "500 MB are free" in printed


def test_nothing_is_checked_or_built_where_the_environment_is_that_of_the_lock(
    clone: Clone,
) -> None:
    clone.free(0)
    content = b"".join((clone.root / name).read_bytes() for name in LOCKED)
    stamp = clone.root / ".venv/.built-from"
    stamp.parent.mkdir()
    stamp.write_text(hashlib.sha256(content).hexdigest() + os.linesep)
    done = clone.build()
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_oldest_python_is_the_same_everywhere() -> None:
    for name in ("pyproject.toml", "schemas/pyproject.toml", "trainer/pyproject.toml"):
        assert 'requires-python = ">=3.11.4"\n' in (ROOT / name).read_text()
    assert "sys.version_info < (3, 11, 4)" in (ROOT / "scripts/environment").read_text()
    assert "Python 3.11.4 or newer" in (ROOT / "README.md").read_text()
