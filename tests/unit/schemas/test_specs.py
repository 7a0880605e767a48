"""Bad specs: each is refused once, naming the field, what is wrong and the fix."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import ValidationError

from drivetrain_schemas import ids
from drivetrain_schemas.errors import MAX_ERRORS, field_errors
from drivetrain_schemas.jobs import JobSpec, Result
from drivetrain_schemas.metrics import Column
from drivetrain_schemas.pods import PodExit, PodSpec
from drivetrain_schemas.specs import MAX_SPEC_BYTES
from drivetrain_schemas.studies import StudySpec

CODE = {"uri": "s3://bucket/code.tar.gz", "sha256": "0" * 64}
JOB: dict[str, Any] = {"name": "digits", "command": "python train.py", "code": CODE}
STUDY: dict[str, Any] = {
    "name": "search",
    "job": {**JOB, "metric": {"name": "loss", "goal": "minimize"}},
    "space": {"learning_rate": {"type": "uniform", "low": 0.001, "high": 0.1}},
    "max_trials": 3,
}
JOB_ID = ids.job_id_for("default", "request-1")
MISSING = object()


def with_field(document: dict[str, Any], path: str, value: object) -> dict[str, Any]:
    """A copy with the field at the dotted path set, or removed."""
    name, _, rest = path.partition(".")
    changed = dict(document)
    if rest:
        changed[name] = with_field(changed.get(name, {}), rest, value)
    elif value is MISSING:
        del changed[name]
    else:
        changed[name] = value
    return changed


def errors_of(model: type[JobSpec] | type[StudySpec], document: object) -> list[tuple[str, ...]]:
    with pytest.raises(ValidationError) as caught:
        model.model_validate(document)
    errors = field_errors(caught.value, contract=model)
    return [(each.field, each.message, each.fix) for each in errors]


WHOLE = ("is not a whole number", "write a whole number without quotes")
NO_SCALAR = (
    "is neither a string nor a number nor true or false",
    "write a string, a number, true or false",
)
BAD_JOBS: list[tuple[str, object, str, str]] = [
    # path, value, want_message, want_fix
    ("colour", "red", "is not a known field", "remove it, or check its spelling"),
    ("max_step", 400, "is not a known field", "did you mean max_steps?"),
    ("resources.gpus", 2, "is not a known field", "did you mean resources.devices?"),
    ("gpus", 2, "is not a known field", "did you mean resources.devices?"),
    ("devices", 2, "is not a known field", "did you mean resources.devices?"),
    ("env", {}, "is not a known field", "did you mean environment?"),
    ("keep-best", 1, "is not a known field", "did you mean checkpoint.keep_best?"),
    ("name", MISSING, "is missing", "add it"),
    ("name", 7, "is not text", "write text; put a number in quotes"),
    ("name", "x" * 64, "is too long", "write at most 63 characters"),
    (
        "name",
        "a\n",
        "does not have the right form",
        "write letters, digits, spaces and ._- with a letter or digit in front",
    ),
    ("command", MISSING, "is missing", "add it"),
    ("command", "", "has too few entries", "give at least 1"),
    ("command", [], "has too few entries", "give at least 1"),
    ("command", [" "], "begins with an empty word", "put the program first"),
    ("command", 3, "is neither a line of text nor a list", "write one of them"),
    ("command", "a" * 70_000, "is too long", "write at most 65536 characters"),
    (
        "command",
        "python train.py && date",
        "holds &&, but no shell runs it",
        "write a list, such as [bash, -c, ...]",
    ),
    (
        "command",
        "date\nls",
        "has more than one line",
        "write one command, or a list, such as [bash, -c, ...]",
    ),
    (
        "command",
        "echo 'a",
        "cannot be split like a shell line: no closing quotation",
        "write a list, such as [bash, -c, ...]",
    ),
    (
        "code",
        MISSING,
        "is missing: the command runs train.py, which comes with code or an image",
        "add code (the command line takes a directory) or image",
    ),
    ("code", ".", "is not a mapping", "write a mapping"),
    (
        "code.uri",
        "http://example.org/x",
        "does not have the right form",
        "write store:..., s3://... or file://..., without spaces",
    ),
    ("code.sha256", "0" * 63, "does not have the right form", "write the SHA-256 as 64"),
    ("image", "pytorch", "both code and image are given", "give one of them"),
    ("resources", [], "is not a mapping", "write a mapping"),
    ("resources.devices", 0, "is too small", "write 1 or more"),
    ("resources.devices", -1, "is too small", "write 1 or more"),
    ("resources.devices", 10**9, "is too large", "write 1024 or less"),
    ("resources.devices", 10**40, "is too large", "write 1024 or less"),
    ("resources.devices", "2", *WHOLE),
    ("resources.devices", 2.0, *WHOLE),
    ("resources.devices", True, *WHOLE),
    ("resources.devices", float("nan"), *WHOLE),
    ("max_steps", 0, "is too small", "write 1 or more"),
    ("seed", -1, "is too small", "write 0 or more"),
    ("priority", 1001, "is too large", "write 1000 or less"),
    ("retries.backoff_seconds", float("nan"), "is not a finite number", "write a finite number"),
    ("retries.backoff_seconds", "1", "is not a number", "write a number without quotes"),
    ("retries.limit", -1, "is too small", "write 0 or more"),
    ("checkpoint.keep_last", 1, "is too small", "write 2 or more"),
    ("checkpoint.every_minutes", 0, "is too small", "write more than 0"),
    ("metric", {"name": "loss"}, "is missing", "add it"),
    (
        "metric",
        {"name": "loss", "goal": "maximise"},
        "is not one of the allowed values",
        "write 'minimize' or 'maximize'",
    ),
    ("hyperparameters.lr", None, *NO_SCALAR),
    ("hyperparameters.int", [1], *NO_SCALAR),
    ("hyperparameters.lr", float("nan"), "is not a finite number", "write a finite number"),
    ("hyperparameters.lr", float("-inf"), "is not a finite number", "write a finite number"),
    ("hyperparameters.lr", 2**53 + 1, "is too large for a whole number", "write at most 2**53"),
    ("hyperparameters.lr", "x" * 1025, "is too long", "write at most 1024 characters"),
    ("hyperparameters.lr", "a\0", "holds NUL or is not Unicode", "write a string"),
    (
        "hyperparameters.learning-rate",
        0.1,
        "does not have the right form",
        "write letters, digits and _ with no digit in front",
    ),
    ("environment.LEVEL", 3, "is not text", "write text; put a number in quotes"),
    ("environment.LEVEL", "a\0", "does not have the right form", "write text without NUL"),
    ("environment.DRIVETRAIN_FENCE", "9", "is set by the platform", "choose another name"),
    ("environment.RANK", "0", "is set by the platform", "choose another name"),
    ("data", "no address", "does not have the right form", "write an address such as"),
    ("alerts.rules", [{"metric": "loss", "above": 1}] * 17, "has too many entries", "give at"),
    ("alerts.diverging", ["accuracy"], "has a series that is no loss", "name series that"),
    ("tags", ["a"] * 33, "has too many entries", "give at most 32"),
]


@pytest.mark.parametrize(
    ("path", "value", "want_message", "want_fix"),
    [pytest.param(*case, id=f"{case[0]}={case[1]!r:.20}") for case in BAD_JOBS],
)
def test_a_bad_job_is_refused_with_the_field_and_the_fix(
    path: str, value: object, want_message: str, want_fix: str
) -> None:
    ((field, message, fix),) = errors_of(JobSpec, with_field(JOB, path, value))
    assert field == ("metric.goal" if path == "metric" else path)
    assert message == want_message
    assert fix.startswith(want_fix)


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        ({}, ("below", "needs below or above, not both", "write one of them")),
        ({"below": 1, "above": 2}, ("below", "needs below or above, not both", "write one of")),
        ({"below": "0.5"}, ("below", "is not a number", "write a number without quotes")),
        ({"above": float("nan")}, ("above", "is not a finite number", "write a finite number")),
        ({"above": 1, "after_steps": -1}, ("after_steps", "is too small", "write 0 or more")),
        ({"above": 1, "after": 10}, ("after", "is not a known field", "did you mean alerts")),
    ],
)
def test_a_bad_rule_is_refused_with_the_field_and_the_fix(
    rule: dict[str, object], wanted: tuple[str, str, str]
) -> None:
    spec = with_field(JOB, "alerts", {"rules": [{"metric": "accuracy", **rule}]})
    ((field, message, fix),) = errors_of(JobSpec, spec)
    assert (field, message) == (f"alerts.rules.0.{wanted[0]}", wanted[1])
    assert fix.startswith(wanted[2])


BAD_STUDIES: list[tuple[str, object, str, str]] = [
    ("job.metric", MISSING, "is missing: trials are ranked by it", "add {name"),
    ("job.resources.devices", "2", *WHOLE),
    ("space", {}, "has too few entries", "give at least 1"),
    ("space.learning_rate.low", "0", "is not a number", "write a number without quotes"),
    ("space.learning_rate.low", 0.1, "is not above low", "write more than 0.1"),
    ("space.learning_rate.step", 1, "is not a known field", "remove it"),
    ("space.learning_rate.type", MISSING, "is missing", "add it"),
    (
        "space.learning_rate.type",
        "normal",
        "is not one of the allowed values",
        "write one of 'uniform', 'integer', 'choice'",
    ),
    ("space.uniform", {"type": "integer", "low": 1.5, "high": 2}, *WHOLE),
    ("space.a", {"type": "integer", "low": 0, "high": 9, "log": True}, "is not above 0", "write"),
    ("space.a", {"type": "uniform", "low": -1e308, "high": 1e308}, "is too far", "write a range"),
    ("space.a", {"type": "choice", "values": [1, None]}, *NO_SCALAR),
    ("sampler", "grid", "is missing: a grid needs a number of points", "add it"),
    ("max_trials", 0, "is too small", "write 1 or more"),
    ("max_parallel_trials", 10_000, "is too large", "write 1000 or less"),
]
FIELDS_OF_STUDIES = {
    ("space.learning_rate.low", 0.1): "space.learning_rate.high",
    ("sampler", "grid"): "space.learning_rate.num",
}


@pytest.mark.parametrize(
    ("path", "value", "want_message", "want_fix"),
    [pytest.param(*case, id=f"{case[0]}={case[1]!r:.20}") for case in BAD_STUDIES],
)
def test_a_bad_study_is_refused_with_the_field_and_the_fix(
    path: str, value: Any, want_message: str, want_fix: str
) -> None:
    ((field, message, fix),) = errors_of(StudySpec, with_field(STUDY, path, value))
    inner = {"integer": "low", "uniform": "high", "choice": "values.1"}
    is_parameter = isinstance(value, dict) and "type" in value
    want_field = f"{path}.{inner[value['type']]}" if is_parameter else path
    if not isinstance(value, dict) and value is not MISSING:
        want_field = FIELDS_OF_STUDIES.get((path, value), want_field)
    assert field == want_field
    assert message.startswith(want_message)
    assert fix.startswith(want_fix)


def test_every_mistake_is_reported_together() -> None:
    bad = with_field(with_field(JOB, "name", 7), "resources.devices", 0)
    assert [field for field, *_ in errors_of(JobSpec, bad)] == ["name", "resources.devices"]


def test_a_thousand_mistakes_are_reported_briefly() -> None:
    errors = errors_of(JobSpec, {**JOB, **{"x" * 10_000 + str(n): 1 for n in range(1000)}})
    assert len(errors) == MAX_ERRORS
    assert all(len(field) <= 256 for field, *_ in errors)


@pytest.mark.parametrize("document", [None, [], "name: x", 7])
def test_what_is_no_mapping_at_all(document: object) -> None:
    assert errors_of(JobSpec, document) == [("(whole)", "is not a mapping", "write a mapping")]


def test_a_spec_leaves_room_in_the_events_that_repeat_it() -> None:
    texts = {f"TEXT_{n}": "x" * 4096 for n in range(32)}
    ((field, message, fix),) = errors_of(JobSpec, {**JOB, "environment": texts})
    assert field == "(whole)"
    assert message.endswith("bytes as JSON")
    assert str(MAX_SPEC_BYTES) in fix


@pytest.mark.parametrize(
    ("command", "want"),
    [
        ("python train.py --name 'two words'", ("python", "train.py", "--name", "two words")),
        ("  python train.py\n", ("python", "train.py")),
        ('python -c "print(1)\nprint(2)"', ("python", "-c", "print(1)\nprint(2)")),
        ("echo a&&b", ("echo", "a&&b")),
        (["bash", "-c", "date && ls"], ("bash", "-c", "date && ls")),
        (["echo", "&&", ""], ("echo", "&&", "")),
    ],
)
def test_a_command_is_split_like_a_shell_line_or_taken_as_it_is(
    command: object, want: tuple[str, ...]
) -> None:
    assert JobSpec.model_validate({**JOB, "command": command}).command == want


@pytest.mark.parametrize(
    "command",
    ["sleep 60", "python -m train", "python /opt/train.py", "python -c 'import x'", "train --fast"],
)
def test_a_command_that_brings_nothing_of_its_own_needs_no_code(command: str) -> None:
    assert JobSpec(name="x", command=command).code is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "command",
    [
        "./train",
        "python3.11 -u src/train.py",
        "/usr/bin/python3 a.py",
        "sh run.sh",
        "torchrun t.py",
    ],
)
def test_a_command_that_runs_a_file_of_its_own_needs_code(command: str) -> None:
    ((field, _, _),) = errors_of(JobSpec, {"name": "x", "command": command})
    assert field == "code"
    assert JobSpec.model_validate({"name": "x", "command": command, "image": "mine:1"}).image


def test_hyperparameters_keep_their_types() -> None:
    written = {"a": 1, "b": 1.0, "c": True, "d": "1"}
    spec = JobSpec.model_validate({**JOB, "hyperparameters": written})
    read = JobSpec.model_validate_json(spec.model_dump_json())
    assert {name: (type(value), value) for name, value in read.hyperparameters.items()} == {
        name: (type(value), value) for name, value in written.items()
    }


def test_a_pod_reads_the_spec_of_a_newer_launcher() -> None:
    document = {
        "pod_id": ids.pod_id_for(JOB_ID, 1, 0),
        "tenant_id": "default",
        "job_id": JOB_ID,
        "run_id": ids.run_id_for(JOB_ID, 1),
        "attempt": 1,
        "fence": 1,
        "node_id": "node-a",
        "pod_index": 0,
        "num_pods": 1,
        "first_rank": 0,
        "num_ranks": 1,
        "world_size": 1,
        "device_type": "cpu",
        "job": {**JOB, "field_of_the_future": 1},
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "object_store_url": "file:///objects",
        "rendezvous_file": "rendezvous",
        "master_port": 29_500,
    }
    assert PodSpec.model_validate(document).job == JobSpec.model_validate(JOB)


@pytest.mark.parametrize(
    ("values", "want"),
    [
        ([0.5, "nan"], None),
        ([1, "-inf"], None),
        ([0.5, None], "values: entry 1 is not a sample"),
        ([0.5, "1"], "values: entry 1 is not a sample"),
        ([True, 1], "values: entry 0 is not a sample"),
        ([float("nan"), 1], "values: entry 0 is not a sample"),
        ("ab", "values: is not a list"),
        ([1], "values: differs from steps in length"),
    ],
)
def test_samples_are_numbers_or_say_why_not(values: object, want: str | None) -> None:
    document = {"steps": [1, 2], "values": values}
    if want is None:
        column = Column.model_validate(document)
        assert Column.model_validate_json(column.model_dump_json()) == column
        return
    with pytest.raises(ValidationError) as caught:
        Column.model_validate(document)
    (error,) = field_errors(caught.value)
    assert f"{error.field}: {error.message}" == want


def test_a_result_holds_finite_numbers_only() -> None:
    with pytest.raises(ValidationError):
        Result.model_validate({"step": 1, "metrics": {"loss": float("nan")}})


def test_a_programs_output_is_taken_as_it_comes_but_for_what_cannot_be_stored() -> None:
    end = PodExit(
        pod_id=ids.pod_id_for(JOB_ID, 1, 0),
        outcome="failed",
        ranks=(),
        last_log="a\0b\ud83d",
        ended_at=datetime(2026, 1, 31, tzinfo=UTC),
    )
    assert end.last_log == "a\N{REPLACEMENT CHARACTER}b\N{REPLACEMENT CHARACTER}"
    assert PodExit.model_validate_json(end.model_dump_json()) == end


def test_a_misspelt_field_is_one_mistake_and_not_two() -> None:
    misspelt = {"name": "digits", "comand": ["sleep", "1"]}
    want = [("comand", "is not a known field", "did you mean command?")]
    assert errors_of(JobSpec, misspelt) == want
    study = with_field({**STUDY, "job": misspelt}, "space.learning_rate.lo", 1)
    assert errors_of(StudySpec, study) == [
        ("job.comand", "is not a known field", "did you mean job.command?"),
        (
            "space.learning_rate.lo",
            "is not a known field",
            "did you mean space.learning_rate.low?",
        ),
    ]


def test_a_grid_without_a_number_of_trials_has_all_its_points() -> None:
    space = {
        "width": {"type": "integer", "low": 1, "high": 9, "num": 3},
        "bias": {"type": "choice", "values": [True, False]},
    }
    grid = with_field({**STUDY, "sampler": "grid", "space": space}, "max_trials", MISSING)
    assert StudySpec.model_validate(grid).max_trials == 6
    assert StudySpec.model_validate({**grid, "max_trials": 4}).max_trials == 4
    many = with_field(grid, "space.width.num", 100_000 // 2 + 1)
    assert errors_of(StudySpec, many)[0][:2] == ("space", "is a grid of 100,002 points")
    bad = with_field(grid, "space.bias.values", 1)
    assert ("max_trials", "is missing", "add it") in errors_of(StudySpec, bad)
    random = {**grid, "sampler": "random"}
    assert errors_of(StudySpec, random) == [("max_trials", "is missing", "add it")]
