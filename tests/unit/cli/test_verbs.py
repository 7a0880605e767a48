"""The reading commands: their requests, and how they show the response."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
import yaml

from drivetrain.cli import logs
from tests.unit.cli.conftest import FakePlatform, RunCli
from tests.unit.cli.test_submit import JOB_ID, STUDY_ID, make_job

CHECKPOINT_ID = "ckpt_" + "c" * 26


def make_log_page(*lines: str, after: int, rank: int = 0, attempt: int = 1) -> dict[str, Any]:
    return {
        "lines": [{"line": line, "rank": rank, "attempt": attempt} for line in lines],
        "next": after,
        "num_dropped_bytes": 0,
    }


def test_jobs_are_listed_page_after_page(cli: RunCli, platform: FakePlatform) -> None:
    platform.on(
        "GET",
        "/v1/jobs",
        {"jobs": [make_job("running", 10)], "next": "p2"},
        {"jobs": [make_job(job_id="job_" + "z" * 26, name=None)], "next": None},
    )
    ran = cli("job", "list", "--state", "running")
    assert ran.code == 0
    title, first, second = ran.out.splitlines()
    assert title.split() == ["JOB", "NAME", "STATE", "STEP", "LEFT", "CHARGED", "SUBMITTED"]
    assert first.split()[:4] == [JOB_ID, "digits", "running", "10/400"]
    assert second.split()[:4] == ["job_" + "z" * 26, "-", "queued", "-"]
    assert [one.url.params.get("after") for one in platform.requests] == [None, "p2"]
    assert platform.requests[0].url.params["state"] == "running"


def test_a_list_is_filtered_and_continues_after_an_empty_page(
    cli: RunCli, platform: FakePlatform
) -> None:
    pages = ({"jobs": [], "next": "p2"}, {"jobs": [make_job()], "next": "p3"})
    platform.on("GET", "/v1/jobs", *pages, {"jobs": [], "next": "p3"})
    ran = cli("job", "list", "--search", "dig", "--tag", "first", "--study", STUDY_ID)
    assert JOB_ID in ran.out
    assert len(platform.requests) == 3
    asked = dict(platform.requests[0].url.params)
    want = {"search": "dig", "tag": "first", "study_id": STUDY_ID, "limit": "100"}
    assert asked == want


def test_a_list_ends_at_its_limit(cli: RunCli, platform: FakePlatform) -> None:
    platform.on("GET", "/v1/jobs", {"jobs": [make_job()] * 3, "next": "more"})
    ran = cli("job", "list", "--limit", "2", "--output", "json")
    assert len(json.loads(ran.out)) == 2
    assert ran.err == "there are more: write a higher --limit\n"
    assert len(platform.requests) == 1


@pytest.mark.parametrize(("age", "is_told"), [("0", False), ("4", False), ("69", True)])
def test_an_outdated_response_is_marked(
    cli: RunCli, platform: FakePlatform, age: str, is_told: bool
) -> None:
    platform.on("GET", "/v1/jobs", {"jobs": [], "next": None})
    platform.headers["Drivetrain-Model-Age-Seconds"] = age
    ran = cli("job", "list")
    assert (ran.code, f"{age} s ago" in ran.err) == (0, is_told)


def test_an_empty_list_is_reported(cli: RunCli, platform: FakePlatform) -> None:
    platform.on("GET", "/v1/jobs", {"jobs": [], "next": None})
    assert cli("job", "list").out == "no jobs\n"
    assert json.loads(cli("job", "list", "-o", "json").out) == []


@pytest.mark.parametrize(("form", "read"), [("json", json.loads), ("yaml", yaml.safe_load)])
def test_one_job_for_programs(cli: RunCli, platform: FakePlatform, form: str, read: Any) -> None:
    platform.on("GET", f"/v1/jobs/{JOB_ID}", make_job("running", 10))
    assert read(cli("job", "show", JOB_ID, "--output", form).out) == make_job("running", 10)


def test_one_job_for_people(cli: RunCli, platform: FakePlatform) -> None:
    run = {"attempt": 1, "state": "failed", "exit_code": 1, "rank": 1, "signal": None, "detail": ""}
    job = make_job(
        "failed", 10, runs=[run], alerts=[], result={"metrics": {"loss": 0.5}}, detail="exit code 1"
    )
    platform.on("GET", f"/v1/jobs/{JOB_ID}", job)
    ran = cli("job", "show", JOB_ID)
    assert "run 1      failed, exit code 1 of rank 1" in ran.out
    assert "result     loss 0.5" in ran.out
    assert "best       accuracy 0.97 at step 380" in ran.out


def test_control_characters_of_the_platform_reach_no_terminal(
    cli: RunCli, platform: FakePlatform
) -> None:
    evil = make_job("failed", runs=[], alerts=[], detail="\x1b]0;owned\x07")
    platform.on("GET", f"/v1/jobs/{JOB_ID}", evil)
    assert "\x1b" not in cli("job", "show", JOB_ID).out


def test_logs_are_printed_with_their_ranks(cli: RunCli, platform: FakePlatform) -> None:
    page = make_log_page("hello", after=1)
    page["lines"] += make_log_page("world", after=2, rank=1)["lines"]
    platform.on("GET", f"/v1/jobs/{JOB_ID}/logs", page)
    assert cli("job", "logs", JOB_ID).out == "0| hello\n1| world\n"
    assert cli("job", "logs", JOB_ID, "--rank", "0", "--tail", "5").out == "hello\nworld\n"
    assert dict(platform.requests[-1].url.params) == {"rank": "0", "tail": "5"}


def test_a_search_goes_back_until_it_has_enough_lines(cli: RunCli, platform: FakePlatform) -> None:
    newest, older = make_log_page("b lost", after=90), make_log_page("a lost", after=60)
    newest |= {"searched_from": 60, "is_complete": False}
    nothing = make_log_page(after=30) | {"searched_from": 20, "is_complete": False}
    older |= {"searched_from": 0, "is_complete": True}
    platform.on("GET", f"/v1/jobs/{JOB_ID}/logs", newest, nothing, older)
    options = ["--search", "lost", "--level", "error", "--attempt", "2", "--tail", "9"]
    options += ["--since", "2026-11-22T10:00:00"]
    ran = cli("job", "logs", JOB_ID, *options)
    assert (ran.code, ran.out) == (0, "0| a lost\n0| b lost\n")
    asked = [dict(one.url.params) for one in platform.requests if "logs" in one.url.path]
    pages = [(one["tail"], one.get("before")) for one in asked]
    assert pages == [("9", None), ("8", "60"), ("8", "20")]
    given = {name: asked[2][name] for name in ("search", "level", "attempt")}
    assert given == {"search": "lost", "level": "error", "attempt": "2"}
    assert datetime.fromisoformat(asked[0]["since"]) == datetime(2026, 11, 22, 10).astimezone()


def test_lines_of_the_last_minutes_are_asked_for_by_age(
    cli: RunCli, platform: FakePlatform
) -> None:
    platform.on("GET", f"/v1/jobs/{JOB_ID}/logs", make_log_page("now", after=1))
    before = datetime.now(UTC)
    ran = cli("job", "logs", JOB_ID, "--since", "10m", "--until", "2026-11-22T10:00:00Z")
    asked = dict(platform.requests[-1].url.params)
    assert (ran.code, ran.out) == (0, "0| now\n")
    since = datetime.fromisoformat(asked["since"]) + timedelta(minutes=10)
    assert before <= since <= datetime.now(UTC)
    assert datetime.fromisoformat(asked["until"]) == datetime(2026, 11, 22, 10, tzinfo=UTC)


@pytest.mark.parametrize("given", ["10", "10 parsecs", "999999999d", "2026-13-01"])
def test_what_is_no_time_is_refused_with_the_forms_that_are(
    cli: RunCli, platform: FakePlatform, given: str
) -> None:
    ran = cli("job", "logs", JOB_ID, "--since", given)
    assert ran.code == 2
    assert "30s, 10m, 2h or 7d" in " ".join(ran.err.split())
    assert not platform.requests


def test_followed_logs_continue_to_the_end_without_duplicate_lines(
    cli: RunCli, platform: FakePlatform
) -> None:
    platform.on(
        "GET",
        f"/v1/jobs/{JOB_ID}/logs",
        make_log_page("a", after=1),
        make_log_page(after=1),
        httpx.ConnectError("connection refused"),
        make_log_page("b", after=2, attempt=2),
        make_log_page(after=2),
        make_log_page("the last words", after=3, attempt=2),
        make_log_page(after=3),
    )
    platform.on(
        "GET", f"/v1/jobs/{JOB_ID}", make_job("running"), make_job("running"), make_job("succeeded")
    )
    ran = cli("job", "logs", JOB_ID, "--follow", "--rank", "0")
    assert ran.code == 0
    assert ran.out == "a\nb\nthe last words\n"
    assert ran.err == "--- attempt 2 ---\n"
    asked = [one.url.params.get("after") for one in platform.requests if "logs" in one.url.path]
    assert asked[:6] == [None, "1", "1", "1", "2", "2"]


def test_what_a_pod_uses_is_shown_by_its_time(cli: RunCli, platform: FakePlatform) -> None:
    series = {"num_samples": 1, "steps": [1_767_225_600], "values": [0.5]}
    platform.on("GET", f"/v1/jobs/{JOB_ID}/metrics", {"series": {"cpu": series}})
    title, row = cli("job", "metrics", JOB_ID, "--system").out.splitlines()
    assert "STEP" not in title
    assert "1767225600" not in row
    assert "2026-01-01" in row or "2025-12-31" in row


def test_metrics_are_summarised_for_people(cli: RunCli, platform: FakePlatform) -> None:
    within = "--attempt 2 --from-step 1 --to-step 9"
    series = {"steps": [1, 2, 3], "values": [0.5, 0.25, "nan"], "num_samples": 3}
    answer = {"job_id": JOB_ID, "series": {"loss": series}, "num_series_left_out": 3}
    platform.on("GET", f"/v1/jobs/{JOB_ID}/metrics", answer)
    ran = cli("job", "metrics", JOB_ID, "-n", "loss", "-n", "accuracy", *within.split())
    assert ran.out.splitlines()[1].split() == ["loss", "3", "3", "nan", "0.25", "0.5"]
    assert ran.err == "3 more series are not shown: select with --name\n"
    assert platform.requests[0].url.params.get_list("name") == ["loss", "accuracy"]
    assert dict(platform.requests[0].url.params) == {
        "name": "loss",
        "attempt": "2",
        "from_step": "1",
        "to_step": "9",
    }


def test_an_explanation_shows_the_jobs_that_hold_slots(cli: RunCli, platform: FakePlatform) -> None:
    explanation = {
        "text": "It waits for 2 slots.",
        "waiting": {
            "holders": [
                {"job_id": "job_x", "num_slots": 2},
                {"job_id": "job_y", "num_slots": 1},
            ]
        },
        "alerts": [],
    }
    platform.on("GET", f"/v1/jobs/{JOB_ID}/explain", explanation)
    lines = ["It waits for 2 slots.", "  job_x holds 2 slots", "  job_y holds 1 slot"]
    assert cli("job", "explain", JOB_ID).out.splitlines() == lines


def test_a_job_is_cancelled(cli: RunCli, platform: FakePlatform) -> None:
    platform.on("POST", f"/v1/jobs/{JOB_ID}/cancel", {"is_confirmed": True})
    ran = cli("job", "cancel", JOB_ID, "--reason", "enough")
    assert (ran.code, ran.out) == (0, f"{JOB_ID} is being cancelled\n")
    assert platform.bodies(f"/v1/jobs/{JOB_ID}/cancel") == [{"reason": "enough"}]


@pytest.mark.parametrize(
    ("arguments", "verb", "body", "done"),
    [
        (("stop", "--reason", "poor"), "stop", {"reason": "poor", "checkpoint": True}, "stopped"),
        (("stop", "--no-checkpoint"), "stop", {"reason": "", "checkpoint": False}, "stopped"),
        (("pause", "--reason", "later"), "pause", {"reason": "later"}, "paused"),
    ],
)
def test_a_job_is_stopped_and_paused(
    cli: RunCli, platform: FakePlatform, arguments: tuple[str, ...], verb: str, body: Any, done: str
) -> None:
    platform.on("POST", f"/v1/jobs/{JOB_ID}/{verb}", {"is_confirmed": True})
    ran = cli("job", arguments[0], JOB_ID, *arguments[1:])
    assert (ran.code, ran.out) == (0, f"{JOB_ID} is being {done}\n")
    assert platform.bodies(f"/v1/jobs/{JOB_ID}/{verb}") == [body]


def test_a_job_is_resumed(cli: RunCli, platform: FakePlatform) -> None:
    platform.on("POST", f"/v1/jobs/{JOB_ID}/resume", {"is_confirmed": True})
    assert cli("job", "resume", JOB_ID).out == f"{JOB_ID} is resumed\n"


def test_a_job_is_annotated(cli: RunCli, platform: FakePlatform) -> None:
    platform.on("POST", f"/v1/jobs/{JOB_ID}/annotate", {"is_confirmed": True})
    options = ("--tag", "a", "--tag", "b", "--remove-tag", "c", "--note", "")
    ran = cli("job", "annotate", JOB_ID, *options)
    assert (ran.code, ran.out) == (0, f"{JOB_ID} is annotated\n")
    assert platform.bodies(f"/v1/jobs/{JOB_ID}/annotate") == [
        {"add_tags": ["a", "b"], "remove_tags": ["c"], "note": ""}
    ]
    nothing = cli("job", "annotate", JOB_ID)
    assert (nothing.code, "nothing is to be changed" in nothing.err) == (2, True)


def test_a_study_is_cancelled(cli: RunCli, platform: FakePlatform) -> None:
    platform.on("POST", f"/v1/studies/{STUDY_ID}/cancel", {"is_confirmed": True})
    ran = cli("study", "cancel", STUDY_ID, "--reason", "enough")
    assert (ran.code, ran.out) == (0, f"{STUDY_ID} is being cancelled\n")
    assert platform.bodies(f"/v1/studies/{STUDY_ID}/cancel") == [{"reason": "enough"}]


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        (("study", "cancel", STUDY_ID), f"/v1/studies/{STUDY_ID}/cancel"),
        (("job", "cancel", JOB_ID), f"/v1/jobs/{JOB_ID}/cancel"),
        (("checkpoint", "pin", CHECKPOINT_ID), f"/v1/checkpoints/{CHECKPOINT_ID}/pin"),
    ],
)
def test_an_unconfirmed_command_is_not_reported_as_done(
    cli: RunCli, platform: FakePlatform, arguments: tuple[str, ...], path: str
) -> None:
    platform.on("POST", path, {"is_confirmed": False}, {"is_confirmed": True})
    asked = cli(*arguments)
    assert (asked.code, asked.out) == (0, f"{arguments[-1]}: requested, not confirmed yet\n")
    assert "not confirmed" not in cli(*arguments).out


def test_checkpoints(cli: RunCli, platform: FakePlatform) -> None:
    one = {
        "checkpoint_id": CHECKPOINT_ID,
        "job_id": JOB_ID,
        "step": 50,
        "attempt": 1,
        "state": "committed",
        "size_bytes": 1500,
        "num_shards": 2,
        "metrics": {"loss": 0.5},
        "manifest_key": "a/manifest.json",
        "committed_at": "2026-01-01T00:00:00Z",
        "is_latest": True,
        "is_best": True,
        "is_pinned": False,
        "restored_by_attempt": 2,
    }
    older = {**one, "checkpoint_id": "ckpt_older", "step": 25, "is_latest": False}
    older["is_best"] = False
    older["metrics"] = {f"layer_{n:03}": 5e-5 for n in range(256)}
    platform.on("GET", f"/v1/jobs/{JOB_ID}/checkpoints", {"checkpoints": [one, older]})
    platform.on("POST", f"/v1/checkpoints/{CHECKPOINT_ID}/pin", {"is_confirmed": True})
    listed = cli("checkpoint", "list", JOB_ID).out
    assert "1.5 kB  latest best restored-by-2" in listed
    for which in ([], ["latest"], ["best"], ["50"], [CHECKPOINT_ID]):
        assert CHECKPOINT_ID in cli("checkpoint", "show", JOB_ID, *which).out
    shown = cli("checkpoint", "show", JOB_ID, "25").out
    assert "ckpt_older" in shown
    assert "layer_009 5e-5, and 246 more: --output json has all" in shown
    assert cli("checkpoint", "show", JOB_ID, "26").code == 4
    assert cli("checkpoint", "pin", CHECKPOINT_ID).out == f"{CHECKPOINT_ID} is pinned\n"


def test_costs(cli: RunCli, platform: FakePlatform) -> None:
    item = {"job_id": JOB_ID, "name": "digits", "charged_micro_usd": 1_234_567}
    spend = {"charged_micro_usd": 10_000, "accruing_micro_usd": 5, "total_micro_usd": 10_005}
    report = {"items": [item], "num_jobs": 1, "charged_micro_usd": 1_234_567, "spend": None}
    platform.on("GET", "/v1/cost", report, {**report, "num_jobs": 2_000})
    platform.on("GET", f"/v1/jobs/{JOB_ID}/cost", spend)
    whole = cli("cost", "show").out
    assert "$1.234567" in whole
    assert "jobs; the sum" not in whole
    assert "the last 1 of 2,000 jobs; the sum is of all" in cli("cost", "show").out
    shown = cli("cost", "show", JOB_ID).out
    assert "total     $0.010005" in shown
    assert "unpriced" not in shown


def test_costs_show_slots_without_a_price(cli: RunCli, platform: FakePlatform) -> None:
    zero = {"charged_micro_usd": 0, "accruing_micro_usd": 0, "total_micro_usd": 0}
    spend = {**zero, "unpriced": [{"pool": "default", "device_type": "nvidia-h200"}]}
    report = {"items": [], "num_jobs": 0, "charged_micro_usd": 0, "spend": spend}
    platform.on("GET", "/v1/cost", report)
    platform.on("GET", f"/v1/jobs/{JOB_ID}/cost", spend)
    for arguments in ([], [JOB_ID]):
        shown = " ".join(cli("cost", "show", *arguments).out.split())
        assert "unpriced nvidia-h200 in pool default: no price, counted as 0" in shown


def test_nodes_show_the_jobs_on_them(cli: RunCli, platform: FakePlatform) -> None:
    held = {"is_held": True, "job_id": JOB_ID}
    slots = [{"slot": 0, **held}, {"slot": 1, **held}, {"slot": 2, **held, "job_id": None}]
    slots.append({"slot": 3, "is_held": False, "job_id": None})
    node = {
        "node_id": "node-1",
        "pool": "default",
        "device_type": "cpu",
        "num_slots": 4,
        "num_free": 1,
        "slots": slots,
    }
    closed = node | {"node_id": "node-2", "slots": [], "unschedulable_reason": "cordoned"}
    removed = node | {"node_id": "node-3", "slots": [], "is_removed": True}
    platform.on("GET", "/v1/nodes", {"nodes": [node, closed, removed]})
    lines = cli("node", "list").out.splitlines()[1:]
    assert lines[0].split()[:5] == ["node-1", "default", "cpu", "1/4", "open"]
    assert lines[0].endswith(f"{JOB_ID} (2), another tenant (1)")
    assert [line.split()[4] for line in lines[1:]] == ["cordoned", "removed"]


PARKED = {
    "parked_id": "parked_x",
    "state": "open",
    "service": "scheduler",
    "topic": "commands.jobs",
    "partition": 1,
    "offset": 7,
    "reason": "not_json",
    "event_type": "",
    "detail": "line 1",
    "size_bytes": 5,
    "parked_at": "2026-01-01T00:00:00Z",
    "replayed_at": None,
    "has_failed_again": False,
    "decision_note": "",
}


def test_parked_records(cli: RunCli, platform: FakePlatform) -> None:
    text = {"size_bytes": 5, "base64": "", "text": "hello", "is_cut": True}
    binary = {"size_bytes": 2, "base64": "//8=", "text": None, "is_cut": False}
    record = {
        **PARKED,
        "headers": [
            {"name": "ce_id", "value": text},
            {"name": "\x1b[2J\nname", "value": text},
        ],
        "key": None,
        "value": binary,
    }
    platform.on("GET", "/v1/parked/parked_x", record)
    platform.on("POST", "/v1/parked/parked_x/replay", {"is_confirmed": True})
    shown = cli("parked", "show", "parked_x").out
    assert "header ce_id" in shown
    assert "hello ..." in shown
    assert "2 B, base64 //8=" in shown
    assert "\x1b" not in shown, "a header's name must not steer the terminal"
    assert "header \ufffd[2J name" in shown
    assert cli("parked", "replay", "parked_x").out == "parked_x replayed\n"


def test_a_list_of_parked_records_can_be_filtered_and_continued(
    cli: RunCli, platform: FakePlatform
) -> None:
    again = {**PARKED, "has_failed_again": True, "replayed_at": "2026-01-01T00:00:00Z"}
    platform.on("GET", "/v1/parked", {"records": [PARKED, again], "next": "place"})
    ran = cli("parked", "list", "--reason", "not_json", "--topic", "logs", "--limit", "2")
    assert "failed again" in ran.out
    assert "--after place" in ran.err
    asked = dict(platform.requests[0].url.params)
    assert asked == {"reason": "not_json", "topic": "logs", "state": "open", "limit": "2"}


def test_a_bulk_decision_continues_until_no_record_is_left(
    cli: RunCli, platform: FakePlatform
) -> None:
    parts = [
        {"num_records": 1000, "num_skipped": 1, "next": "place", "is_confirmed": True},
        {"num_records": 500, "num_skipped": 0, "next": None, "is_confirmed": True},
    ]
    platform.on("POST", "/v1/parked/discard", *parts)
    ran = cli("parked", "discard", "--all", "--reason", "not_json", "--note", "a test client")
    assert ran.out == "1,500 records discarded\n"
    first = {"note": "a test client", "reason": "not_json"}
    assert platform.bodies("/v1/parked/discard") == [first, {**first, "after": "place"}]


@pytest.mark.parametrize(
    "arguments", [[], ["parked_x", "--all"], ["parked_x", "--reason", "r"], ["--reason", "r"]]
)
def test_a_bulk_decision_needs_the_option_all(
    cli: RunCli, platform: FakePlatform, arguments: list[str]
) -> None:
    ran = cli("parked", "replay", *arguments)
    assert (ran.code, platform.requests) == (2, [])


@pytest.mark.parametrize(
    ("status", "want_code"), [(401, 5), (403, 5), (404, 4), (409, 5), (422, 5), (429, 5), (500, 3)]
)
def test_exit_codes_of_refusals(
    cli: RunCli, platform: FakePlatform, status: int, want_code: int
) -> None:
    platform.on("GET", "/v1/nodes", {"status": status, "detail": "because"})
    ran = cli("node", "list")
    assert (ran.code, ran.out) == (want_code, "")
    assert "error: because\n" in ran.err


def test_a_server_that_is_not_a_gateway(cli: RunCli, platform: FakePlatform) -> None:
    platform.on("GET", "/v1/nodes", 200)
    ran = cli("node", "list")
    assert ran.code == 3
    assert "does not come from a Drivetrain gateway" in ran.err


def test_an_id_with_slashes_stays_one_segment(cli: RunCli, platform: FakePlatform) -> None:
    assert cli("parked", "show", "../nodes?x").code == 4
    assert platform.requests[0].url.raw_path == b"/v1/parked/..%2Fnodes%3Fx"


@pytest.mark.parametrize(
    "arguments", [("job",), ("job", "fly"), ("job", "list", "--limit", "0"), ("nothing",)]
)
def test_wrong_usage_is_exit_code_2(
    cli: RunCli, platform: FakePlatform, arguments: tuple[str, ...]
) -> None:
    assert cli(*arguments).code == 2
    assert platform.requests == []


@pytest.mark.parametrize("text", ["loss", "=1", "loss=abc"])
def test_an_invalid_metric_is_refused(cli: RunCli, text: str) -> None:
    assert cli("report", text, "--step", "1").code == 2


def test_a_report_goes_to_the_pod(cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[Any] = []

    def take(values: dict[str, float], step: int, phase: str | None, alert: str | None) -> bool:
        taken.append((values, step))
        return True

    monkeypatch.setattr("drivetrain.reporting.report", take)
    assert cli("report", "loss=0.3", "accuracy=nan", "--step", "10").code == 0
    [(values, step)] = taken
    assert (values["loss"], step) == (0.3, 10)
    assert values["accuracy"] != values["accuracy"]


def test_a_report_outside_of_a_job_is_an_error(
    cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DRIVETRAIN_CONTROL_SOCKET", raising=False)
    ran = cli("report", "loss=0.3", "--step", "10")
    assert ran.code == 2
    assert "not a job on the platform" in ran.err


def test_a_cost_report_sums_the_days(cli: RunCli, platform: FakePlatform) -> None:
    line = {
        "day": "2026-02-01",
        "pool": "default",
        "kind": "productive",
        "tenant_id": "default",
        "project": "vision",
        "job_id": None,
        "job_name": None,
        "micro_usd": 1_500_000,
    }
    idle = {**line, "tenant_id": None, "project": None, "kind": "idle", "micro_usd": 250_000}
    lines = [line, {**line, "day": "2026-02-02"}, {**line, "project": None}, idle]
    text = "".join(json.dumps(each) + "\n" for each in [*lines, {"is_complete": True}])
    platform.on("GET", "/v1/cost/report", text.encode())
    out = cli("cost", "report", "--month", "2026-02").out
    rows = [row.split("  ")[0].strip() for row in out.splitlines()]
    assert rows == ["OF", "vision", "(no project)", "(nobody)", "$4.75 in total"]
    assert "$3.00" in out


def test_slots_over_time(cli: RunCli, platform: FakePlatform) -> None:
    hour = 3_600_000_000
    of = {"pool": "default", "device_type": "gpu", "name": None, "micro_usd": [0, 0, 0]}
    answer = {
        "step": "hour",
        "starts_at": [f"2026-02-01T{number:02}:00:00Z" for number in range(3)],
        "pools": ["default"],
        "series": [
            {**of, "kind": "held", "holder": "cars", "slot_microseconds": [0, 2 * hour, hour]},
            {**of, "kind": "held", "holder": None, "slot_microseconds": [0, hour, 0]},
            {**of, "kind": "idle", "holder": None, "slot_microseconds": [0, hour, hour // 2]},
            {**of, "pool": "lab", "kind": "idle", "holder": None,
             "slot_microseconds": [0, 0, hour // 4]},
        ],
    }  # fmt: skip
    platform.on("GET", "/v1/cost/fleet", answer)
    rows = [line.split() for line in cli("cost", "fleet", "--by", "project").out.splitlines()]
    assert rows[0] == ["TIME", "(UTC)", "cars", "(no", "project)", "(idle)"]
    assert rows[1:] == [
        ["2026-02-01", "01:00", "2.00", "1.00", "1.00"],
        ["2026-02-01", "02:00", "1.00", "-", "0.75"],
    ]


def test_recommendations(cli: RunCli, platform: FakePlatform) -> None:
    one = {
        "job_id": JOB_ID,
        "job_name": "digits",
        "kind": "fewer_checkpoints",
        "saving_micro_usd": 1_250_000,
        "evidence": "saving stopped training for 30.0 % of its time",
        "advice": "save less often",
    }
    path = "/v1/cost/recommendations"
    platform.on("GET", path, {"recommendations": [one]}, {"recommendations": []})
    shown = cli("cost", "recommendations").out
    assert "$1.25" in shown
    assert "30.0 %" in shown
    assert "nothing to recommend" in cli("cost", "recommendations").out


def test_a_job_is_repeated_and_what_may_differ_is_said(cli: RunCli, platform: FakePlatform) -> None:
    differs = [{"what": "device type", "was": "h200", "now": "a100"}]
    platform.on("GET", f"/v1/jobs/{JOB_ID}/reproduce", {"would_differ": differs})
    made = {"job_id": "job_" + "b" * 26, "job_url": "http://localhost:8480/jobs/new"}
    platform.on("POST", f"/v1/jobs/{JOB_ID}/rerun", made)
    platform.on("POST", "/v1/login-links", {"url": "http://localhost:8480/login"})
    ran = cli("job", "rerun", JOB_ID, "--request-id", "again")
    assert (ran.code, ran.out.splitlines()[0]) == (0, made["job_id"])
    assert "may differ: device type: was h200; now a100" in ran.err
    assert platform.bodies(f"/v1/jobs/{JOB_ID}/rerun") == [{"request_id": "again"}]


@pytest.mark.parametrize(("state", "code"), [("succeeded", 0), ("failed", 1)])
def test_a_repeated_job_is_waited_for(
    cli: RunCli, platform: FakePlatform, state: str, code: int
) -> None:
    platform.on("GET", f"/v1/jobs/{JOB_ID}/reproduce", {"would_differ": []})
    made = {"job_id": "job_" + "b" * 26, "job_url": "http://localhost:8480/jobs/new"}
    platform.on("POST", f"/v1/jobs/{JOB_ID}/rerun", made)
    platform.on(
        "GET", f"/v1/jobs/{made['job_id']}", {**made, "state": "running"}, {**made, "state": state}
    )
    ran = cli("job", "rerun", JOB_ID, "--wait", "--output", "json")
    assert (ran.code, json.loads(ran.out)["state"]) == (code, state)


@pytest.mark.parametrize("output", ["json", "table"])
def test_a_repeated_job_is_followed_beside_its_document(
    cli: RunCli, platform: FakePlatform, monkeypatch: pytest.MonkeyPatch, output: str
) -> None:
    monkeypatch.setattr(logs, "POLL_SECONDS", 0.0)
    platform.on("GET", f"/v1/jobs/{JOB_ID}/reproduce", {"would_differ": []})
    made = {"job_id": "job_" + "b" * 26, "job_url": "http://localhost:8480/jobs/new"}
    platform.on("POST", f"/v1/jobs/{JOB_ID}/rerun", made)
    platform.on("POST", "/v1/login-links", {"url": "http://localhost:8480/login"})
    platform.on("GET", f"/v1/jobs/{made['job_id']}", {**made, "state": "succeeded"})
    line = {"attempt": 1, "rank": 0, "line": "step 1"}
    page = {"next": 1, "lines": []}
    logged = f"/v1/jobs/{made['job_id']}/logs"
    platform.on("GET", logged, {**page, "lines": [line]}, page)
    ran = cli("job", "rerun", JOB_ID, "--follow", "--output", output)
    assert ran.code == 0, ran.err
    if output == "json":
        assert json.loads(ran.out) == made
    assert "0| step 1" in (ran.err if output == "json" else ran.out)


@pytest.mark.parametrize(
    ("answer", "fix"),
    [
        ({"status": 503, "detail": "the cost service did not answer"}, "try again in a moment;"),
        (503, "check the address"),
    ],
)
def test_a_part_that_is_away_is_no_wrong_address(
    cli: RunCli, platform: FakePlatform, answer: Any, fix: str
) -> None:
    platform.on("GET", "/v1/cost/recommendations", answer)
    ran = cli("cost", "recommendations")
    assert ran.code == 3
    assert f"fix: {fix}" in ran.err


@pytest.mark.parametrize(("retry_after", "num_requests"), [("2", 4), ("15", 1)])
def test_a_part_that_is_silent_is_not_waited_for_again(
    cli: RunCli, platform: FakePlatform, retry_after: str, num_requests: int
) -> None:
    """The gateway waited two seconds for it each time."""
    platform.headers = {"Retry-After": retry_after}
    path = "/v1/cost/recommendations"
    platform.on("GET", path, {"status": 503, "detail": "the cost service did not answer in time"})
    assert cli("cost", "recommendations").code == 3
    assert len(platform.requests) == num_requests
