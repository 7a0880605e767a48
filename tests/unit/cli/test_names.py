"""What a person writes in the place of an id, and how refusals are shown."""

from typing import Any

import pytest

from tests.unit.cli.conftest import FakePlatform, RunCli
from tests.unit.cli.test_submit import JOB_ID, STUDY_ID, make_job, make_study

OTHER_ID = "job_" + "b" * 26


OF_DIGITS = ["--job", "digits"]


def found(*ids: str, is_name: bool, state: str = "succeeded") -> dict[str, Any]:
    items = [{"id": one, "name": "digits", "state": state, "is_name": is_name} for one in ids]
    return {"ids": items}


def test_a_whole_id_is_taken_without_a_request_for_it(cli: RunCli, platform: FakePlatform) -> None:
    platform.on("GET", f"/v1/jobs/{JOB_ID}", make_job())
    assert cli("job", "show", JOB_ID).code == 0
    assert len(platform.requests) == 1


@pytest.mark.parametrize("text", ["aaaaaaaa", "job_aaa", "digits"])
def test_the_beginning_of_an_id_and_a_name_are_accepted(
    cli: RunCli, platform: FakePlatform, text: str
) -> None:
    platform.on("GET", "/v1/ids", found(JOB_ID, is_name=text == "digits"))
    platform.on("GET", f"/v1/jobs/{JOB_ID}", make_job())
    ran = cli("job", "show", text)
    assert (ran.code, ran.err) == (0, "")
    assert JOB_ID in ran.out
    assert dict(platform.requests[0].url.params) == {"kind": "job", "text": text}


def test_latest_is_the_newest(cli: RunCli, platform: FakePlatform) -> None:
    platform.on("GET", "/v1/studies", {"studies": [make_study("running")], "next": None})
    platform.on("GET", f"/v1/studies/{STUDY_ID}", make_study("running", sampler="grid"))
    assert STUDY_ID in cli("study", "show", "latest").out
    assert dict(platform.requests[0].url.params) == {"limit": "1"}
    platform.on("GET", "/v1/jobs", {"jobs": [], "next": None})
    assert "there is no job yet" in cli("job", "show", "latest").err


def test_a_name_of_several_means_the_newest_and_says_so(
    cli: RunCli, platform: FakePlatform
) -> None:
    platform.on("GET", "/v1/ids", found(JOB_ID, OTHER_ID, is_name=True))
    platform.on("GET", f"/v1/jobs/{JOB_ID}", make_job())
    ran = cli("job", "show", "digits")
    assert ran.code == 0
    assert ran.err == f"digits: {JOB_ID}, the newest of several with this name\n"


def test_what_may_mean_several_is_refused_with_the_choices(
    cli: RunCli, platform: FakePlatform
) -> None:
    platform.on("GET", "/v1/ids", found(JOB_ID, OTHER_ID, is_name=False))
    ran = cli("job", "show", "a")
    assert ran.code == 2
    assert f"error: 'a' may mean several jobs\n  {JOB_ID} digits, succeeded\n" in ran.err
    platform.on("GET", "/v1/ids", found(JOB_ID, OTHER_ID, is_name=True, state="running"))
    for words in (["job", "cancel", "digits"], ["budget", "set", "b", "--limit", "1", *OF_DIGITS]):
        ran = cli(*words)
        assert ran.code == 2, "which one is changed must not be a guess"
        assert OTHER_ID in ran.err
    platform.on("GET", "/v1/ids", found(JOB_ID, OTHER_ID, is_name=True))
    ran = cli("job", "annotate", "digits", "--tag", "good")
    assert (ran.code, OTHER_ID in ran.err) == (2, True), "it changes those that have ended, too"


def test_an_unknown_name_is_not_found(cli: RunCli, platform: FakePlatform) -> None:
    platform.on("GET", "/v1/ids", {"ids": []})
    for text in ("nothing", "", "x" * 500, "../jobs"):
        ran = cli("job", "show", text)
        assert (ran.code, ran.out) == (4, "")
        assert "there is no job" in ran.err


def test_each_sentence_of_a_refusal_is_printed_once(cli: RunCli, platform: FakePlatform) -> None:
    field = {"field": "state", "message": "there is no state 'flying'", "fix": "one of running"}
    problem = {"status": 422, "title": "Invalid request", "detail": f"state: {field['message']}"}
    platform.on("GET", "/v1/jobs", {**problem, "errors": [field]})
    want = "error: state: there is no state 'flying'\n  fix: one of running\n"
    assert cli("job", "list", "--state", "flying").err == want
    other = {"field": "limit", "message": "is too small", "fix": ""}
    detail = f"state: {field['message']}; limit: is too small"
    platform.on("GET", "/v1/jobs", {**problem, "detail": detail, "errors": [field, other]})
    err = cli("job", "list").err
    assert err.count("is too small") == err.count("no state") == 1


def test_studies_are_filtered(cli: RunCli, platform: FakePlatform) -> None:
    platform.on("GET", "/v1/studies", {"studies": [], "next": None})
    assert cli("study", "list", "--state", "running", "--name", "search").code == 0
    asked = dict(platform.requests[0].url.params)
    assert asked == {"state": "running", "name": "search", "limit": "100"}


def test_a_checkpoint_of_a_job_is_pinned_by_what_it_is(cli: RunCli, platform: FakePlatform) -> None:
    checkpoints = [
        {"checkpoint_id": "ckpt_" + letter * 26, "step": step, "is_latest": False, "is_best": best}
        for letter, step, best in (("a", 50, False), ("b", 40, True))
    ]
    platform.on("GET", f"/v1/jobs/{JOB_ID}/checkpoints", {"checkpoints": checkpoints})
    for letter in "ab":
        path = f"/v1/checkpoints/ckpt_{letter * 26}/pin"
        platform.on("POST", path, {"is_confirmed": True})
    for which, letter in (("best", "b"), ("50", "a"), ("bbbbbbbb", "b"), ("ckpt_a", "a")):
        ran = cli("checkpoint", "pin", JOB_ID, which)
        assert (ran.code, ran.out) == (0, f"ckpt_{letter * 26} is pinned\n")
    assert cli("checkpoint", "pin", JOB_ID, "ckpt_").code == 4
