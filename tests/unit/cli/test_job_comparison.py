"""`drivetrain job compare`: what it asks for, and what it prints."""

from typing import Any

from tests.unit.cli.conftest import FakePlatform, RunCli

FIRST, SECOND = "job_" + "a" * 26, "job_" + "b" * 26


def make_job(job_id: str, value: float) -> dict[str, Any]:
    return {
        "job_id": job_id,
        "name": "digits",
        "state": "succeeded",
        "best": {"name": "accuracy", "value": value},
        "progress": {"step": 100},
        "charged_micro_usd": 2_000_000,
    }


def make_line(name: str, *values: str, is_hyperparameter: bool = False) -> dict[str, Any]:
    differs = len(set(values)) > 1
    return {
        "name": name,
        "values": list(values),
        "is_hyperparameter": is_hyperparameter,
        "differs": differs,
    }


def test_jobs_are_side_by_side_with_what_differs(cli: RunCli, platform: FakePlatform) -> None:
    lines = [
        make_line("lr", "0.1", "0.2", is_hyperparameter=True),
        make_line("width", "8", "8", is_hyperparameter=True),
        make_line("package.torch", "2.9", "2.10"),
    ]
    jobs = [make_job(FIRST, 0.9), make_job(SECOND, 0.95)]
    platform.on("GET", "/v1/comparison", {"jobs": jobs, "lines": lines})
    shown = cli("job", "compare", FIRST, SECOND)
    assert shown.code == 0, shown.err
    rows = [line.split() for line in shown.out.splitlines()]
    assert ["accuracy", "0.9", "0.95"] in rows
    assert ["lr", "0.1", "0.2"] in rows
    assert ["width", "8", "8"] in rows
    assert ["package.torch", "2.9", "2.10"] in rows
    assert platform.requests[-1].url.params.get_list("job_id") == [FIRST, SECOND]


def test_one_job_has_nothing_to_compare_with(cli: RunCli, platform: FakePlatform) -> None:
    refused = cli("job", "compare", FIRST, FIRST)
    assert (refused.code, "name two to 10" in refused.err) == (2, True)
