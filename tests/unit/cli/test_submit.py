"""Submitting: the checks before anything is sent, the request, and the result of waiting."""

import io
import json
import signal
import tarfile
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.bad_studies import BAD_STUDIES
from tests.unit.cli.conftest import URL, FakePlatform, RunCli

JOB_ID = "job_" + "a" * 26
JOB = """\
name: digits
command: python train.py
code: .
max_steps: 400
hyperparameters: {learning_rate: 5e-2}
metric: {name: accuracy, goal: maximize}
"""
UPLOADED = {"uri": "file:///objects/code/x.tar.gz", "sha256": "0" * 64, "size_bytes": 1}


def make_job(state: str = "queued", step: int | None = None, **fields: Any) -> dict[str, Any]:
    progress = None
    if step is not None:
        progress = {"step": step, "max_steps": 400, "eta_seconds": 61.0}
    job = {
        "job_id": JOB_ID,
        "name": "digits",
        "state": state,
        "job_url": f"/jobs/{JOB_ID}",
        "attempt": 1,
        "progress": progress,
        "waiting": None,
        "refusal": None,
        "best": {"name": "accuracy", "goal": "maximize", "value": 0.97, "step": 380},
        "charged_micro_usd": 12_500,
        "detail": None,
        "is_cancelling": False,
    }
    return {**job, **fields}


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text("print(1)")
    (tmp_path / "job.yaml").write_text(JOB)
    return tmp_path / "job.yaml"


@pytest.fixture
def ready(platform: FakePlatform) -> FakePlatform:
    platform.on("POST", "/v1/code", UPLOADED)
    platform.on("POST", "/v1/jobs", make_job())
    return platform


def test_a_job_is_sent_with_its_code_uploaded(
    cli: RunCli, ready: FakePlatform, job_file: Path
) -> None:
    ran = cli("job", "submit", str(job_file))
    assert ran.code == 0
    assert ran.out == f"{JOB_ID}\n{URL}/jobs/{JOB_ID}\n"
    [body] = ready.bodies("/v1/jobs")
    assert body["request_id"]
    assert body["spec"] == {
        "name": "digits",
        "command": "python train.py",
        "code": {"uri": UPLOADED["uri"], "sha256": UPLOADED["sha256"]},
        "max_steps": 400,
        "hyperparameters": {"learning_rate": 0.05},
        "metric": {"name": "accuracy", "goal": "maximize"},
    }
    upload = next(one for one in ready.requests if one.url.path == "/v1/code")
    with tarfile.open(fileobj=io.BytesIO(upload.content)) as archive:
        assert archive.getnames() == ["job.yaml", "train.py"]
    assert upload.headers["authorization"] == "Bearer token-of-the-test"


def test_fields_are_set_on_the_command_line(
    cli: RunCli, ready: FakePlatform, job_file: Path
) -> None:
    settings = ["hyperparameters.learning_rate=1e-1", "tags=[a, b]", "resources.devices=2"]
    options = [word for setting in settings for word in ("--set", setting)]
    assert cli("job", "submit", str(job_file), *options, "--request-id", "mine").code == 0
    [body] = ready.bodies("/v1/jobs")
    assert body["request_id"] == "mine"
    assert body["spec"]["hyperparameters"] == {"learning_rate": 0.1}
    assert body["spec"]["tags"] == ["a", "b"]
    assert body["spec"]["resources"] == {"devices": 2}


def test_a_project_is_named_on_the_command_line(
    cli: RunCli, ready: FakePlatform, job_file: Path
) -> None:
    assert cli("job", "submit", str(job_file), "--project", "1e3").code == 0
    [body] = ready.bodies("/v1/jobs")
    assert body["spec"]["project"] == "1e3"
    refused = cli("job", "submit", str(job_file), "--project", "a/b")
    assert refused.code == 2
    assert "project" in refused.err
    assert "letters, digits, spaces and ._-" in refused.err


def test_tags_of_the_command_line_are_added_to_those_of_the_file(
    cli: RunCli, ready: FakePlatform, job_file: Path
) -> None:
    options = ("--set", "tags=[a, b]", "--tag", "stage:nightly", "--tag", "a")
    assert cli("job", "submit", str(job_file), *options).code == 0
    assert cli("job", "submit", str(job_file), "--tag", "1e3").code == 0
    assert cli("job", "submit", "--tag", "words", "--", "python", str(job_file)).code == 0
    sent = [body["spec"]["tags"] for body in ready.bodies("/v1/jobs")]
    assert sent == [["a", "b", "stage:nightly"], ["1e3"], ["words"]]
    refused = cli("job", "submit", str(job_file), "--tag", "no blank")
    assert refused.code == 2
    assert "letters, digits and ._:/-" in refused.err
    refused = cli("job", "submit", str(job_file), "--set", "tags=word", "--tag", "b")
    assert refused.code == 2
    assert len(ready.bodies("/v1/jobs")) == 3


def test_another_number_of_ranks_than_devices_is_refused(
    cli: RunCli, ready: FakePlatform, job_file: Path
) -> None:
    cases = ((2, "2", True), (1, "2", False), (4, "gpu", True))
    for devices, ranks, is_right in cases:
        launch = ("torchrun", "--standalone", f"--nproc_per_node={ranks}", "train.py")
        ran = cli("job", "submit", str(job_file), "--devices", str(devices), "--", *launch)
        assert (ran.code == 0) == is_right, ran.err
    assert (
        "torchrun is to start 2 ranks"
        in cli(
            "job", "submit", str(job_file), "--", "torchrun", "--nproc-per-node", "2", "train.py"
        ).err
    )


def test_a_job_is_read_from_input(cli: RunCli, ready: FakePlatform) -> None:
    ran = cli("job", "submit", "-", stdin=b"{name: x, command: sleep 1}")
    assert ran.code == 0
    assert ready.bodies("/v1/jobs")[0]["spec"] == {"name": "x", "command": "sleep 1"}


@pytest.mark.parametrize(
    ("text", "want"),
    [
        pytest.param(
            "name: x\ncommand: a\ncolour: red", "job.yaml:3: colour is not a", id="unknown"
        ),
        pytest.param(
            "name: x\ncommand: a\nresources:\n  devices: -1", "job.yaml:4: ", id="negative"
        ),
        pytest.param("name: x\ncommand: a\nmax_steps: '4'", "job.yaml:3: max_steps", id="type"),
        pytest.param(
            "name: x\ncommand: a\nhyperparameters: {lr: 1,\n  LR: 2}",
            "job.yaml:4: hyperparameters.LR has the same variable as lr: DRIVETRAIN_HP_LR",
            id="one variable",
        ),
        pytest.param("name: x\n", "job.yaml: command is missing (add it)", id="missing"),
        pytest.param(f"name: {'x' * 100}\ncommand: a", "job.yaml:1: name is too long", id="name"),
        pytest.param("- 1", "job.yaml is not a mapping", id="a list"),
        pytest.param("name: x\nname: y", "job.yaml:2: the key name occurs twice", id="duplicate"),
        pytest.param("name: x\ncommand: a\ncode: ''", "code is empty", id="empty code"),
        pytest.param("name: x\ncommand: a\ncode: nowhere", "is not a directory", id="no directory"),
    ],
)
def test_a_wrong_file_is_refused_before_anything_is_sent(
    cli: RunCli, ready: FakePlatform, job_file: Path, text: str, want: str
) -> None:
    job_file.write_text(text)
    ran = cli("job", "submit", str(job_file))
    assert ran.code == 2
    assert want in ran.err
    assert ran.out == ""
    assert ready.requests == []


@pytest.mark.parametrize(
    ("setting", "want"),
    [
        ("max_steps", "is not an assignment"),
        ("=1", "is not an assignment"),
        ("name.x=1", "name is not a mapping"),
        ("max_steps=.nan", "--set max_steps:1: .nan is not a finite number"),
        ("max_steps=-1", "--set: max_steps is too small"),
        ("lr=0.1", "lr is not a known field (for a hyperparameter: --set hyperparameters.lr=...)"),
        ("max_step=9", "did you mean max_steps?"),
    ],
)
def test_a_wrong_setting_is_refused(
    cli: RunCli, ready: FakePlatform, job_file: Path, setting: str, want: str
) -> None:
    ran = cli("job", "submit", str(job_file), "--set", setting)
    assert ran.code == 2
    assert want in ran.err
    assert ready.requests == []


def test_a_missing_file_is_refused(cli: RunCli, platform: FakePlatform) -> None:
    ran = cli("job", "submit", "nowhere.yaml")
    assert (ran.code, ran.err) == (
        2,
        "error: cannot read nowhere.yaml: No such file or directory\n",
    )


def test_a_refusal_is_shown_field_by_field(
    cli: RunCli, ready: FakePlatform, job_file: Path
) -> None:
    errors = [{"field": "resources.devices", "message": "is too large", "fix": "write 2 or less"}]
    problem = {"status": 422, "detail": "the pool has 2 devices", "errors": errors}
    ready.on("POST", "/v1/jobs", problem)
    ran = cli("job", "submit", str(job_file))
    assert ran.code == 5
    assert "error: the pool has 2 devices\n" in ran.err
    assert "  resources.devices is too large (write 2 or less)\n" in ran.err


def test_a_request_without_a_reply_is_repeated_with_its_id(
    cli: RunCli, ready: FakePlatform, job_file: Path
) -> None:
    lost = httpx.ReadError("connection reset")
    ready.on("POST", "/v1/jobs", lost, 503, make_job())
    assert cli("job", "submit", str(job_file)).code == 0
    bodies = ready.bodies("/v1/jobs")
    assert len(bodies) == 3
    assert bodies[0] == bodies[1] == bodies[2]


def test_a_submission_survives_a_restart_of_the_broker(
    cli: RunCli, ready: FakePlatform, job_file: Path
) -> None:
    """More failures than one call retries; every call has the same request id."""
    ready.on("POST", "/v1/jobs", *[503] * 6, httpx.ConnectError("refused"), make_job())
    ran = cli("job", "submit", str(job_file))
    assert ran.code == 0
    bodies = ready.bodies("/v1/jobs")
    assert len(bodies) == 8
    assert all(body == bodies[0] for body in bodies)
    assert f"retrying with request id {bodies[0]['request_id']}" in ran.err


def test_a_submission_without_a_reply_shows_its_request_id(
    cli: RunCli, ready: FakePlatform, job_file: Path
) -> None:
    ready.on("POST", "/v1/jobs", 503)
    ran = cli("job", "submit", str(job_file))
    assert ran.code == 3
    request_id = ready.bodies("/v1/jobs")[0]["request_id"]
    assert f"submit again with --request-id {request_id}" in ran.err


def test_a_platform_that_never_responds(cli: RunCli, ready: FakePlatform, job_file: Path) -> None:
    ready.on("POST", "/v1/jobs", httpx.ConnectError("connection refused"))
    ran = cli("job", "submit", str(job_file))
    assert ran.code == 3
    assert "does not respond: connection refused" in ran.err
    assert "fix: " in ran.err


def test_waiting_survives_a_restart_of_the_gateway_and_shows_progress(
    cli: RunCli, ready: FakePlatform, job_file: Path
) -> None:
    ready.on(
        "GET",
        f"/v1/jobs/{JOB_ID}",
        make_job(waiting={"detail": "2 of 2 slots are held"}),
        make_job("running", 10),
        make_job("running", 12),
        httpx.ConnectError("connection refused"),
        {"status": 404, "detail": "no such job"},
        make_job("running", 200, attempt=2),
        make_job("succeeded", 400, attempt=2),
    )
    ran = cli("job", "submit", str(job_file), "--wait")
    assert ran.code == 0
    notes = [line for line in ran.err.splitlines() if not line.startswith("uploaded")]
    assert notes == [
        "queued: 2 of 2 slots are held",
        "running: step 10/400, 1 min 1 s left",
        f"{URL} does not respond: connection refused; retrying",
        "no such job; retrying",
        "running: step 200/400, 1 min 1 s left, attempt 2",
        "succeeded: step 400, best accuracy 0.97 at step 380, charged $0.0125",
        f"what it wrote: drivetrain job files {JOB_ID}",
    ]
    assert ran.out == f"{JOB_ID}\n{URL}/jobs/{JOB_ID}\n"


def test_a_job_without_steps_ends_without_a_step(
    cli: RunCli, ready: FakePlatform, job_file: Path
) -> None:
    ready.on("GET", f"/v1/jobs/{JOB_ID}", {**make_job("succeeded"), "progress": None})
    assert "succeeded: best accuracy 0.97" in cli("job", "submit", str(job_file), "--wait").err


@pytest.mark.parametrize(
    ("job", "want_code", "want"),
    [
        (make_job("failed", detail="exit code 1"), 1, "error: the job failed: exit code 1"),
        (make_job("cancelled"), 1, "error: the job cancelled: no reason given"),
        (
            make_job(
                "rejected",
                refusal={"reason": "no_such_pool", "detail": "there is no pool x", "errors": []},
            ),
            5,
            "error: no_such_pool: there is no pool x",
        ),
    ],
)
def test_a_job_that_does_not_succeed_has_its_exit_code(
    cli: RunCli,
    ready: FakePlatform,
    job_file: Path,
    job: dict[str, Any],
    want_code: int,
    want: str,
) -> None:
    ready.on("GET", f"/v1/jobs/{JOB_ID}", job)
    ran = cli("job", "submit", str(job_file), "--wait")
    assert ran.code == want_code
    assert want in ran.err


def test_ctrl_c_ends_the_waiting_and_says_that_the_job_continues(
    cli: RunCli, ready: FakePlatform, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.cli.specs.source_of", lambda _: None)  # it waits for Git
    monkeypatch.setattr("time.sleep", lambda _: signal.raise_signal(signal.SIGINT))
    ready.on("GET", f"/v1/jobs/{JOB_ID}", make_job("running", 10))
    before = signal.getsignal(signal.SIGINT)
    ran = cli("job", "submit", str(job_file), "--wait")
    assert ran.code == 130
    assert ran.err.endswith(f"the job continues; see: drivetrain job show {JOB_ID}\n")
    assert signal.getsignal(signal.SIGINT) is before


def test_waiting_with_json_writes_one_document(
    cli: RunCli, ready: FakePlatform, job_file: Path
) -> None:
    ready.on("GET", f"/v1/jobs/{JOB_ID}", make_job("succeeded", 400))
    ran = cli("job", "submit", str(job_file), "--wait", "--output", "json")
    assert json.loads(ran.out)["state"] == "succeeded"


def test_an_estimate_uploads_nothing(cli: RunCli, platform: FakePlatform, job_file: Path) -> None:
    answer = {
        "price_id": "default-2026",
        "price_micro_usd_per_slot_hour": 2_000_000,
        "estimated_micro_usd": 4_000_000,
    }
    platform.on("POST", "/v1/estimates", answer)
    ran = cli("job", "estimate", str(job_file), "--seconds", "3600")
    assert ran.code == 0
    assert "$4.00 for 1 h" in ran.out
    assert "$2.00 per slot and hour (default-2026)" in ran.out
    assert [one.url.path for one in platform.requests] == ["/v1/estimates"]


def test_an_estimate_from_history(cli: RunCli, platform: FakePlatform, job_file: Path) -> None:
    parts = {"low_micro_usd": 1_000_000, "median_micro_usd": 2_000_000, "high_micro_usd": 9_000_000}
    history = {"num_jobs": 7, "basis": "name", **parts}
    answer = {"price_id": "p", "price_micro_usd_per_slot_hour": 1, "estimated_micro_usd": 2_000_000}
    none = {"num_jobs": 0}
    path = "/v1/estimates"
    platform.on("POST", path, {**answer, "history": history}, {**answer, "history": none})
    shown = " ".join(cli("job", "estimate", str(job_file)).out.split())
    assert "$2.00 ($1.00 to $9.00), as the last 7 jobs of this name took" in shown
    shown = " ".join(cli("job", "estimate", str(job_file), "--seconds", "9").out.split())
    assert "no job of this name, command or project has succeeded yet" in shown


STUDY_ID = "study_" + "b" * 26
STUDY = """\
name: search
job:
  name: digits
  command: python train.py
  code: .
  metric: {name: loss, goal: minimize}
space:
  learning_rate: {type: uniform, low: 1e-4, high: 1e-1, log: true}
max_trials: 2
"""


def make_study(state: str, **fields: Any) -> dict[str, Any]:
    study = {
        "study_id": STUDY_ID,
        "study_url": f"{URL}/studies/{STUDY_ID}",
        "state": state,
        "metric": "loss",
        "num_trials": 2,
        "num_completed": 0,
        "num_failed": 0,
        "best_number": None,
        "best_value": None,
        "refusal": None,
        "trials": [],
    }
    return {**study, **fields}


def test_a_study_is_sent_and_waited_for(
    cli: RunCli, platform: FakePlatform, job_file: Path
) -> None:
    job_file.write_text(STUDY)
    trial = {"number": 1, "hyperparameters": {"learning_rate": 0.01}}
    platform.on("POST", "/v1/code", UPLOADED)
    platform.on("POST", "/v1/studies", make_study("running"))
    platform.on(
        "GET",
        f"/v1/studies/{STUDY_ID}",
        make_study("running"),
        make_study("running", num_completed=1, best_value=0.5, best_number=0),
        make_study("completed", num_completed=2, best_number=1, best_value=0.25, trials=[trial]),
    )
    ran = cli("study", "submit", str(job_file), "--wait")
    assert ran.code == 0
    assert ran.out == f"{STUDY_ID}\n{URL}/studies/{STUDY_ID}\n"
    assert "running: trial 1/2, best loss 0.5" in ran.err
    assert "completed: best is trial 1, loss 0.25 with learning_rate=0.01" in ran.err
    [body] = platform.bodies("/v1/studies")
    assert body["spec"]["job"]["code"]["uri"] == UPLOADED["uri"]


def test_a_study_without_a_value_is_exit_code_1(
    cli: RunCli, platform: FakePlatform, job_file: Path
) -> None:
    job_file.write_text(STUDY)
    platform.on("POST", "/v1/code", UPLOADED)
    platform.on("POST", "/v1/studies", make_study("running"))
    platform.on("GET", f"/v1/studies/{STUDY_ID}", make_study("completed", num_failed=2))
    ran = cli("study", "submit", str(job_file), "--wait")
    assert ran.code == 1
    assert "no trial of the study has a value" in ran.err


def test_a_wrong_space_is_named_with_its_line(
    cli: RunCli, platform: FakePlatform, job_file: Path
) -> None:
    job_file.write_text(STUDY.replace("low: 1e-4", "low: 5"))
    ran = cli("study", "submit", str(job_file))
    assert ran.code == 2
    assert "job.yaml:8: space.learning_rate.high is not above low" in ran.err
    assert platform.requests == []


@pytest.mark.parametrize("name", BAD_STUDIES)
def test_a_study_that_cannot_be_searched_is_not_sent(
    cli: RunCli, platform: FakePlatform, job_file: Path, name: str
) -> None:
    changes, field = BAD_STUDIES[name]
    study = {**yaml.safe_load(STUDY), **changes}
    given = {key: value for key, value in study.items() if value is not None}
    job_file.write_text(yaml.safe_dump(given))
    ran = cli("study", "submit", str(job_file))
    assert ran.code == 2
    assert f" {field} " in ran.err
    assert platform.requests == []


def test_waiting_ends_when_the_study_was_cancelled(
    cli: RunCli, platform: FakePlatform, job_file: Path
) -> None:
    job_file.write_text(STUDY)
    platform.on("POST", "/v1/code", UPLOADED)
    platform.on("POST", "/v1/studies", make_study("running"))
    path = f"/v1/studies/{STUDY_ID}"
    platform.on("GET", path, make_study("running", is_cancelling=True), make_study("cancelled"))
    ran = cli("study", "submit", str(job_file), "--wait")
    assert ran.code == 1
    assert "running: trial 0/2, being cancelled\nerror: the study was cancelled" in ran.err


def test_a_study_learns_from_earlier_ones_by_their_names(
    cli: RunCli, platform: FakePlatform, job_file: Path
) -> None:
    earlier = "study_" + "b" * 26
    job_file.write_text(f"{STUDY}warm_start: [digits, {earlier}]\n")
    found = {"id": STUDY_ID, "name": "digits", "state": "completed", "is_name": True}
    platform.on("GET", "/v1/ids", {"ids": [found]})
    platform.on("POST", "/v1/code", UPLOADED)
    platform.on("POST", "/v1/studies", make_study("running"))
    assert cli("study", "submit", str(job_file)).code == 0
    [body] = platform.bodies("/v1/studies")
    assert body["spec"]["warm_start"] == [STUDY_ID, earlier]
