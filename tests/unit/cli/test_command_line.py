"""A job from the command line, without a file."""

from pathlib import Path

import pytest

from drivetrain.cli.command_line import as_spec
from drivetrain.cli.errors import InvalidInput
from tests.unit.cli.conftest import FakePlatform, RunCli
from tests.unit.cli.test_submit import JOB, UPLOADED, make_job


@pytest.fixture
def ready(platform: FakePlatform, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakePlatform:
    (tmp_path / "train.py").write_text("print(1)")
    monkeypatch.chdir(tmp_path)
    platform.on("POST", "/v1/code", UPLOADED)
    platform.on("POST", "/v1/jobs", make_job())
    return platform


CODE = {"uri": UPLOADED["uri"], "sha256": UPLOADED["sha256"]}


def test_a_command_is_a_job_with_the_directory_as_its_code(
    cli: RunCli, ready: FakePlatform
) -> None:
    ran = cli(
        "job", "submit", "--devices", "2", "--", *["python", "train.py", "--lr", "0.1", "--", "x"]
    )
    assert (ran.code, ran.err.startswith("uploaded 1 file (")) == (0, True)
    assert ready.bodies("/v1/jobs")[0]["spec"] == {
        "name": "train",
        "command": ["python", "train.py", "--lr", "0.1", "--", "x"],
        "code": CODE,
        "resources": {"devices": 2},
    }


def test_options_set_the_other_fields(cli: RunCli, ready: FakePlatform) -> None:
    options = ["--name", "my job: 1", "--set", "max_steps=10"]
    ran = cli("job", "submit", *options, "--", "python", "train.py")
    assert "name does not have the right form" in ran.err
    assert ready.requests == []
    options[1] = "100"
    assert cli("job", "submit", *options, "--", "sleep", "1").code == 0
    want = {"name": "100", "command": ["sleep", "1"], "max_steps": 10}
    assert ready.bodies("/v1/jobs")[0]["spec"] == want


def test_a_command_replaces_the_one_of_a_file(cli: RunCli, ready: FakePlatform) -> None:
    Path("other.yaml").write_text(JOB)
    assert cli("job", "submit", "other.yaml", "--", "python", "train.py", "--fast").code == 0
    spec = ready.bodies("/v1/jobs")[0]["spec"]
    assert spec["command"] == ["python", "train.py", "--fast"]
    assert (spec["name"], spec["max_steps"]) == ("digits", 400)


def test_the_file_is_job_yaml_where_none_is_named(cli: RunCli, ready: FakePlatform) -> None:
    ran = cli("job", "submit")
    assert ran.code == 2
    assert "cannot read job.yaml" in ran.err
    assert "drivetrain init" in ran.err
    Path("job.yaml").write_text(JOB)
    assert cli("job", "submit").code == 0
    assert ready.bodies("/v1/jobs")[0]["spec"]["name"] == "digits"


def test_dashes_without_a_command_are_wrong_usage(cli: RunCli, ready: FakePlatform) -> None:
    assert cli("job", "submit", "--").code == 2
    assert ready.requests == []


@pytest.mark.parametrize(
    ("command", "name", "has_code"),
    [
        ("python train.py", "train", True),
        ("torchrun --nproc-per-node 2 lib/my_model.py", "my_model", True),
        ("python -m lib.my_model", "lib.my_model", True),
        ("python -m http.server", "http.server", False),
        ("./run.sh", "run", True),
        ("python /opt/train.py", "train", False),
        ("sleep 5", "sleep", False),
        ("nvidia-smi", "nvidia-smi", False),
    ],
)
def test_the_name_and_the_code_follow_from_the_command(
    tmp_path: Path, command: str, name: str, has_code: bool
) -> None:
    (tmp_path / "lib").mkdir()
    for file in ("train.py", "lib/my_model.py", "run.sh"):
        (tmp_path / file).touch()
    spec = as_spec(command.split(), tmp_path)
    assert (spec["name"], "code" in spec) == (name, has_code)


@pytest.mark.parametrize("command", ["python nofile.py", "torchrun lib/none.py", "bash none.sh"])
def test_a_script_that_does_not_exist_is_named(tmp_path: Path, command: str) -> None:
    with pytest.raises(InvalidInput, match=f"{command.split()[1]} is not a file in {tmp_path}"):
        as_spec(command.split(), tmp_path)


def test_a_file_inside_a_shell_line_is_found(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert as_spec(["bash", "-c", "python train.py && echo 'it is done'"], tmp_path)["code"] == "."
