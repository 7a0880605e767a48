"""`drivetrain alert`: what it asks for, and how it shows the answers."""

import json

import pytest

from drivetrain.cli import completing
from tests.unit.cli.conftest import FakePlatform, RunCli
from tests.unit.cli.test_submit import JOB_ID

SILENCE_ID = "silence_" + "s" * 26
UNTIL = "2026-02-01T12:00:00Z"
ALERT = {
    "alert": "straggler",
    "state": "open",
    "job_id": JOB_ID,
    "job_name": "digits",
    "raised_at": "2026-02-01T10:00:00Z",
    "silence": {"silence_id": SILENCE_ID, "ends_at": UNTIL, "reason": "repair"},
    "detail": "pod 1 makes 60% of the steps",
}
SILENCE = {
    "silence_id": SILENCE_ID,
    "alert": "straggler",
    "job_id": JOB_ID,
    "project": None,
    "ends_at": UNTIL,
    "reason": "repair",
}


def test_open_alerts_are_listed_unless_all_are_asked_for(
    cli: RunCli, platform: FakePlatform
) -> None:
    platform.on("GET", "/v1/alerts", {"alerts": [ALERT], "next": None})
    ran = cli("alert", "list", "--project", "vision", "--alert", "straggler")
    row = ran.out.splitlines()[1].split()
    assert row[:4] == ["straggler", "open", JOB_ID, "digits"]
    assert cli("alert", "list", "--state", "all", "--job", JOB_ID, "-o", "json").code == 0
    first, second = (dict(one.url.params) for one in platform.requests)
    assert first == {"state": "open", "project": "vision", "alert": "straggler", "limit": "100"}
    assert second == {"job_id": JOB_ID, "limit": "100"}


def test_an_alert_is_silenced_for_a_time(cli: RunCli, platform: FakePlatform) -> None:
    answer = {"is_confirmed": True, "silence_id": SILENCE_ID, "ends_at": UNTIL}
    platform.on("POST", "/v1/silences", answer)
    ran = cli("alert", "silence", "straggler", "--job", JOB_ID, "--for", "8h", "--reason", "repair")
    assert ran.out.startswith("straggler is silenced until 2026-02-01 ")
    cli("alert", "silence", "all", "--project", "vision")
    assert platform.bodies("/v1/silences") == [
        {"alert": "straggler", "job_id": JOB_ID, "for_seconds": 28_800, "reason": "repair"},
        {"project": "vision", "for_seconds": 7200, "reason": ""},
    ]


@pytest.mark.parametrize("command", ["silence", "unsilence"])
def test_an_unknown_alert_is_refused_with_those_there_are(
    cli: RunCli, platform: FakePlatform, command: str
) -> None:
    ran = cli("alert", command, "stragler")
    assert (ran.code, platform.requests) == (2, [])
    assert "stragler is not an alert" in ran.err
    assert "script, all" in ran.err


@pytest.mark.parametrize("text", ["8", "0h", "-1h", "1w", "forever"])
def test_a_length_of_time_that_is_none_is_refused(
    cli: RunCli, platform: FakePlatform, text: str
) -> None:
    ran = cli("alert", "silence", "all", f"--for={text}")
    assert (ran.code, "30m, 8h or 3d" in ran.err, platform.requests) == (2, True, [])


def test_a_silence_that_is_too_long_is_refused_in_the_callers_words(
    cli: RunCli, platform: FakePlatform
) -> None:
    ran = cli("alert", "silence", "all", "--for=31d")
    assert (ran.code, platform.requests) == (2, [])
    assert "--for 31d is too long" in ran.err
    assert "write 30d or less" in ran.err


def test_a_silence_is_ended_by_what_it_is_of(cli: RunCli, platform: FakePlatform) -> None:
    of_all = {**SILENCE, "silence_id": "silence_" + "a" * 26, "job_id": None}
    platform.on("GET", "/v1/silences", {"silences": [of_all, SILENCE]})
    path = f"/v1/silences/{SILENCE_ID}/end"
    platform.on("POST", path, {"is_confirmed": True})
    ran = cli("alert", "unsilence", "straggler", "--job", JOB_ID)
    assert ran.out == "straggler is no longer silenced\n"
    assert [one.url.path for one in platform.requests] == ["/v1/silences", path]
    assert cli("alert", "unsilence", "slower").code == 4


def test_silences_are_listed(cli: RunCli, platform: FakePlatform) -> None:
    of_all = {**SILENCE, "alert": None, "job_id": None, "project": "vision"}
    platform.on("GET", "/v1/silences", {"silences": [SILENCE, of_all]})
    _, first, second = cli("alert", "silences").out.splitlines()
    assert first.split()[:2] == ["straggler", JOB_ID]
    assert second.split()[:3] == ["all", "project", "vision"]
    assert len(json.loads(cli("alert", "silences", "-o", "json").out)) == 2


def test_alerts_are_completed() -> None:
    assert completing.alerts("s") == ["stalled", "samples_dropped", "straggler", "slower", "script"]
    assert completing.alerts_or_all("a") == ["all"]
