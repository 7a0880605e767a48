"""What a repetition of a job would have otherwise, and what it had otherwise."""

from typing import Any

import pytest

from services.gateway.core.comparison import differences
from services.gateway.core.descriptions import hyperparameters
from services.gateway.core.reproduction import (
    Present,
    compared,
    has_differed,
    repeated,
    seed_of,
    would_differ,
)

SPEC: dict[str, Any] = {
    "name": "digits",
    "command": ["python", "train.py"],
    "code": {"uri": "file:///store/code/a", "sha256": "a" * 64},
    "resources": {"pool": "default", "device_type": None},
    "environment": {"API_TOKEN": "do-not-show"},
}
SAID: dict[str, Any] = {
    "python": "3.11.7",
    "platform": "Linux",
    "packages": [{"name": "numpy", "version": "2.4"}, {"name": "torch", "version": "2.9"}],
    "entry_point": "train.py",
    "arguments": ["--fast"],
    "seed": 7,
    "world_size": 1,
    "device_type": "h200",
    "device_name": "NVIDIA H200",
    "data": [{"uri": "data.csv", "version": "v1", "checksum": "sha256:ab"}],
}
SAME = Present(has_code=True, device_types=("h200",))


def whats(found: Any) -> list[str]:
    return [one.what for one in found]


def test_nothing_differs_where_everything_is_known_and_there() -> None:
    assert list(would_differ(SPEC, SAID, 7, SAME)) == []


@pytest.mark.parametrize(
    ("spec", "said", "seed", "present", "what"),
    [
        ({}, {}, 7, Present(has_code=False, device_types=("h200",)), "code"),
        ({"code": None}, {}, 7, SAME, "code"),
        ({}, {}, None, SAME, "seed"),
        ({}, {}, 2**31, SAME, "seed"),
        ({}, {}, 7, Present(has_code=None, device_types=("a100",)), "device type"),
        ({}, {}, 7, Present(has_code=True, device_types=("a100", "h200")), "device type"),
        ({}, {}, 7, Present(has_code=True, device_types=()), "device type"),
        ({"start_from": {"checkpoint": "newest"}}, {}, 7, SAME, "start"),
        ({}, {"data": [{"uri": "s3://x/y", "version": None, "checksum": None}]}, 7, SAME, "data"),
        ({"data": "s3://x/y"}, {"data": []}, 7, SAME, "data"),
        ({"data": "s3://x/y"}, {"data": None}, 7, SAME, "data"),
        ({"resources": None}, {}, 7, Present(has_code=True, device_types=()), "device type"),
    ],
)
def test_what_would_differ_is_said(
    spec: Any, said: Any, seed: int | None, present: Present, what: str
) -> None:
    assert whats(would_differ(SPEC | spec, SAID | said, seed, present)) == [what]


def test_a_program_that_says_nothing_of_itself_is_said_to() -> None:
    assert whats(would_differ(SPEC, None, 7, SAME)) == ["packages"]


def test_the_seed_is_that_of_the_spec_else_of_the_result_else_what_the_run_said() -> None:
    assert seed_of({"seed": 1}, {"seed": {"number": 2}}, {"seed": 3}) == 1
    assert seed_of({}, {"seed": {"number": 0}}, {"seed": 3}) == 0
    assert seed_of({}, None, {"seed": 3}) == 3
    assert seed_of({}, {}, None) is None
    made = repeated("job_x", SPEC, 0)
    assert (made["seed"], made["rerun_of"], made["code"]) == (0, "job_x", SPEC["code"])


def test_what_a_repetition_ran_with_is_compared_by_name() -> None:
    now = SAID | {
        "packages": [{"name": "torch", "version": "2.10"}, {"name": "pillow", "version": "12"}],
        "device_name": "NVIDIA A100",
        "data": [{"uri": "data.csv", "version": "v1", "checksum": "sha256:cd"}],
    }
    assert [(one.what, one.was, one.now) for one in has_differed(SAID, now)] == [
        ("device", "NVIDIA H200", "NVIDIA A100"),
        ("numpy", "2.4", "none"),
        ("pillow", "none", "12"),
        ("torch", "2.9", "2.10"),
        ("data data.csv", "v1 sha256:ab", "v1 sha256:cd"),
    ]
    assert has_differed(SAID, SAID) == has_differed(None, SAID) == has_differed(SAID, None) == []


def test_of_a_job_that_recorded_nothing_no_package_is_compared() -> None:
    jobs = [compared(SPEC, said, {}) for said in (None, SAID, SAID | {"python": "3.12.1"})]
    assert {line.name: line.values for line in differences(jobs)} == {
        "runs on.python": ("not recorded", "3.11.7", "3.12.1"),
        "surroundings": ("none", "recorded", "recorded"),
    }


def test_jobs_are_compared_by_commit_packages_devices_and_annotations_without_values() -> None:
    first = compared(
        SPEC | {"source": {"commit": "a" * 40, "is_dirty": False, "diff": "secret"}},
        SAID,
        {"tags": ["x"], "project": "p"},
    )
    other = SAID | {"device_type": "a100", "packages": [{"name": "numpy", "version": "2.4"}]}
    second = compared(
        SPEC | {"source": {"commit": "b" * 40, "is_dirty": False}, "environment": {}},
        other,
        {"tags": [], "project": "p"},
    )
    rows = {line.name: line.values for line in differences([first, second])}
    assert rows == {
        "environment.API_TOKEN": ("given", "none"),
        "package.torch": ("2.9", "none"),
        "runs on.device_type": ("h200", "a100"),
        "source.commit": ("a" * 40, "b" * 40),
        "tags": ("x", "none"),
    }


@pytest.mark.parametrize(
    ("spec", "said", "seed", "present"),
    [
        ({"code": None, "image": "registry/a"}, {}, 7, SAME),
        ({}, {}, 0, SAME),
        ({}, {}, 2**31 - 1, SAME),
        ({}, {}, 7, Present(has_code=None, device_types=("h200",))),
        ({}, {"device_type": None}, 7, Present(has_code=True, device_types=("a100", "b200"))),
        ({"start_from": {"checkpoint": "best"}}, {}, 7, SAME),
        ({"start_from": None, "data": "data.csv"}, {}, 7, SAME),
        (
            {"resources": {"device_type": "h200"}},
            {},
            7,
            Present(has_code=True, device_types=("a100", "h200")),
        ),
    ],
)
def test_what_is_fixed_does_not_differ(
    spec: Any, said: Any, seed: int | None, present: Present
) -> None:
    assert list(would_differ(SPEC | spec, SAID | said, seed, present)) == []


@pytest.mark.parametrize(
    ("types", "now"),
    [
        ((), "no node in pool default"),
        (("b200", "a100"), "a100, b200"),
        (("h200", "a100"), "one of a100, h200"),
    ],
)
def test_the_device_types_that_there_are_now_are_named(types: tuple[str, ...], now: str) -> None:
    [found] = would_differ(SPEC, SAID, 7, Present(has_code=True, device_types=types))
    assert (found.was, found.now) == ("h200", now)


def test_unchecked_data_is_named_with_its_version() -> None:
    data = [{"uri": "a", "version": "v1"}, {"uri": "b"}]
    assert [one.was for one in would_differ(SPEC, SAID | {"data": data}, 7, SAME)] == ["a v1", "b"]


def test_hyperparameters_and_arguments_of_both_runs_are_compared_as_text() -> None:
    first = SAID | {"hyperparameters": {"a": [1, 2], "b": []}, "seed": None, "arguments": []}
    second = SAID | {"hyperparameters": {"a": [1, 3], "c": 0}, "seed": 0, "data": [{"uri": "d"}]}
    assert [(one.what, one.was, one.now) for one in has_differed(first, second)] == [
        ("seed", "unknown", "0"),
        ("arguments", "none", "--fast"),
        ("data d", "none", "unknown"),
        ("data data.csv", "v1 sha256:ab", "none"),
        ("hyperparameter a", "1 2", "1 3"),
        ("hyperparameter b", "none", "none"),
        ("hyperparameter c", "none", "0"),
    ]


def test_the_hyperparameters_of_a_job_are_those_of_its_spec_and_those_its_run_named() -> None:
    spec, said = {"hyperparameters": {"a": 1, "b": 2}}, {"hyperparameters": {"b": 3, "c": 4}}
    assert hyperparameters(spec, said) == {"a": 1, "b": 3, "c": 4}
    assert hyperparameters(spec, None) == hyperparameters(spec, {}) == spec["hyperparameters"]
    assert hyperparameters(None, said) == said["hyperparameters"]
    assert hyperparameters({"hyperparameters": None}, None) == {}
