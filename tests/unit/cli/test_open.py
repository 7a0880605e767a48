"""Links that sign in: to a terminal only."""

import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import URL, FakePlatform, RunCli
from tests.unit.cli.test_submit import JOB_ID, STUDY_ID, UPLOADED, make_job

LINK = f"{URL}/jobs/{JOB_ID}?code=0123456789abcdef"


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Standard output is a terminal with a browser; the addresses that the browser opened."""
    opened: list[str] = []
    monkeypatch.setattr(type(sys.stdout), "isatty", lambda _: True)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    return opened


def test_the_page_of_a_job_is_opened_signed_in(
    cli: RunCli, platform: FakePlatform, terminal: list[str]
) -> None:
    platform.on("POST", "/v1/login-links", {"url": LINK})
    ran = cli("open", JOB_ID)
    assert (ran.code, ran.out) == (0, f"{LINK}\n")
    assert terminal == [LINK]
    assert platform.bodies("/v1/login-links") == [{"path": f"/jobs/{JOB_ID}"}]


@pytest.mark.parametrize(("arguments", "path"), [((), "/"), ((STUDY_ID,), f"/studies/{STUDY_ID}")])
def test_without_a_terminal_only_the_link_is_printed(
    cli: RunCli, platform: FakePlatform, arguments: tuple[str, ...], path: str
) -> None:
    platform.on("POST", "/v1/login-links", {"url": LINK})
    assert cli("open", *arguments).out == f"{LINK}\n"
    assert platform.bodies("/v1/login-links") == [{"path": path}]


def test_a_name_that_is_of_no_job_may_be_of_a_study(cli: RunCli, platform: FakePlatform) -> None:
    study = {"id": STUDY_ID, "name": "search", "state": "running", "is_name": True}
    platform.on("GET", "/v1/ids", {"ids": []}, {"ids": [study]}, {"ids": []})
    platform.on("POST", "/v1/login-links", {"url": LINK})
    assert cli("open", "search").code == 0
    assert platform.bodies("/v1/login-links") == [{"path": f"/studies/{STUDY_ID}"}]
    ran = cli("open", "nothing")
    assert (ran.code, ran.err) == (4, "error: there is no job or study 'nothing'\n")


def test_a_submitted_job_is_printed_with_a_link_that_signs_in(
    cli: RunCli, platform: FakePlatform, terminal: list[str], tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text("name: x\ncommand: sleep 1\n")
    platform.on("POST", "/v1/code", UPLOADED)
    platform.on("POST", "/v1/jobs", make_job())
    platform.on("POST", "/v1/login-links", {"url": LINK}, 500)
    assert cli("job", "submit", str(tmp_path / "job.yaml")).out == f"{JOB_ID}\n{LINK}\n"
    plain = cli("job", "submit", str(tmp_path / "job.yaml"))
    assert (plain.code, plain.out) == (0, f"{JOB_ID}\n{URL}/jobs/{JOB_ID}\n")
