"""The verbs that change a study: what they send, and what they say."""

import json
from typing import Any

import pytest

from tests.unit.cli.conftest import FakePlatform, RunCli
from tests.unit.cli.test_submit import STUDY_ID, make_study

PATH = f"/v1/studies/{STUDY_ID}"


@pytest.mark.parametrize(
    ("words", "verb", "body", "said"),
    [
        (
            ("pause", "--reason", "night"),
            "pause",
            {"reason": "night", "trials": "finish"},
            "paused",
        ),
        (("pause", "--trials", "pause"), "pause", {"reason": "", "trials": "pause"}, "paused"),
        (("resume",), "resume", {}, "goes on"),
        (("stop", "--reason", "enough"), "stop", {"reason": "enough"}, "is ending"),
        (("extend", "--max-trials", "9"), "change", {"max_trials": 9}, "is changed"),
        (
            ("extend", "--cost-usd", "20"),
            "change",
            {"changed_limits": {"cost_usd": 20.0}},
            "is changed",
        ),
        (
            ("extend", "--no-improvement", "30", "--failed-trials", "4"),
            "change",
            {"changed_limits": {"no_improvement": {"trials": 30}, "failed_trials": 4}},
            "is changed",
        ),
    ],
)
def test_a_study_is_changed(
    cli: RunCli,
    platform: FakePlatform,
    words: tuple[str, ...],
    verb: str,
    body: dict[str, Any],
    said: str,
) -> None:
    platform.on("GET", PATH, make_study("running"))
    platform.on("POST", f"{PATH}/{verb}", {"is_confirmed": True})
    ran = cli("study", words[0], STUDY_ID, *words[1:])
    assert (ran.code, platform.bodies(f"{PATH}/{verb}")) == (0, [body])
    assert said in ran.out


def test_an_extension_says_what_it_extends(cli: RunCli, platform: FakePlatform) -> None:
    ran = cli("study", "extend", STUDY_ID)
    assert (ran.code, "--max-trials" in ran.err, platform.requests) == (2, True, [])


def test_an_answer_for_programs(cli: RunCli, platform: FakePlatform) -> None:
    platform.on("POST", f"{PATH}/resume", {"is_confirmed": False})
    assert json.loads(cli("study", "resume", STUDY_ID, "-o", "json").out) == {"is_confirmed": False}
    assert "not confirmed yet" in cli("study", "resume", STUDY_ID).out
