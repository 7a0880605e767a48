"""The state of a Git repository, as it is recorded at a submission."""

import subprocess
from pathlib import Path

import pytest

from drivetrain.cli.git_source import source_of
from drivetrain_schemas.specs import MAX_DIFF_CHARACTERS, Source
from tests.unit.cli.conftest import FakePlatform, RunCli
from tests.unit.cli.test_submit import ready

__all__ = ["ready"]


def git(directory: Path, *arguments: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(
        ("git", "-C", str(directory), *names, *arguments), check=True, capture_output=True
    )
    return done.stdout.decode().strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "train.py").write_text("rate = 0.1\n")
    (tmp_path / ".env").write_text("TOKEN=old\n")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def test_a_clean_repository_has_a_commit_and_a_branch(repository: Path) -> None:
    assert source_of(repository) == {
        "commit": git(repository, "rev-parse", "HEAD"),
        "branch": "main",
        "is_dirty": False,
    }
    git(repository, "checkout", "-q", "--detach")
    assert "branch" not in (source_of(repository) or {})


def test_no_program_of_the_repository_s_settings_is_run(repository: Path) -> None:
    ran = repository / "ran"
    program = repository / "program"
    program.write_text(f"#!/bin/sh\necho $0 >> {ran}\ncat $1\n")
    program.chmod(0o755)
    for name in ("diff.external", "diff.own.textconv", "core.fsmonitor"):
        git(repository, "config", name, str(program))
    (repository / ".gitattributes").write_text("*.py diff=own\n")
    (repository / "train.py").write_text("rate = 0.05\n")
    found = source_of(repository) or {}
    assert "-rate = 0.1\n+rate = 0.05\n" in found["diff"]
    assert not ran.exists()


def test_what_is_not_committed_is_recorded_without_passwords_and_is_bounded(
    repository: Path,
) -> None:
    (repository / "train.py").write_text("rate = 0.05\n")
    (repository / ".env").write_text("TOKEN=new\n")
    (repository / "sub").mkdir()
    (repository / "sub" / ".env.local").write_text("TOKEN=other\n")
    git(repository, "add", "-A")
    found = source_of(repository) or {}
    assert found["is_dirty"] is True
    assert "-rate = 0.1\n+rate = 0.05\n" in found["diff"]
    assert "TOKEN" not in found["diff"]
    assert found["diff_characters"] == len(found["diff"])
    (repository / "train.py").write_bytes(b"x\xff\n" * 20_000)
    found = source_of(repository) or {}
    assert len(found["diff"]) == MAX_DIFF_CHARACTERS < found["diff_characters"]
    assert Source.model_validate(found).is_dirty


def test_outside_of_a_repository_and_without_git_there_is_none(
    tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outside = tmp_path.parent / f"{tmp_path.name}-outside"
    outside.mkdir()
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(outside.parent))
    assert source_of(outside) is None
    monkeypatch.setenv("PATH", "/nowhere")
    assert source_of(repository) is None


def test_a_submission_names_the_commit_of_its_code(
    cli: RunCli, ready: FakePlatform, repository: Path
) -> None:
    job = repository / "job.yaml"
    job.write_text("name: digits\ncommand: python train.py\ncode: .\n")
    assert cli("job", "submit", str(job)).code == 0
    own = "{commit: " + "a" * 40 + "}"
    assert cli("job", "submit", str(job), "--set", f"source={own}").code == 0
    first, second = (body["spec"]["source"] for body in ready.bodies("/v1/jobs"))
    assert first["commit"] == git(repository, "rev-parse", "HEAD")
    assert second == {"commit": "a" * 40}
