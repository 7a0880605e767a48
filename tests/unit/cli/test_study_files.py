"""A study as an Optuna storage, and studies side by side."""

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import optuna
import pytest

from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.optuna_storage import address, read_finished
from tests.unit.cli import test_submit
from tests.unit.cli.conftest import FakePlatform, RunCli
from tests.unit.cli.test_submit import STUDY_ID, make_study

STUDY = test_submit.STUDY.replace("  code: .\n", "").replace("train.py", "-m train")

SPACE = {
    "rate": {"type": "uniform", "low": 0.001, "high": 0.1, "log": True},
    "depth": {"type": "integer", "low": 1, "high": 4},
    "optimizer": {
        "type": "group",
        "parameters": {"name": {"type": "choice", "values": ["sgd", "adam"]}},
    },
    "data": {"type": "constant", "value": "full"},
}
PATH = f"/v1/studies/{STUDY_ID}"


def make_trial(number: int, state: str, value: float | None = None, **more: Any) -> dict[str, Any]:
    point = {"rate": 0.1 / (number + 1), "depth": 1 + number % 4, "data": "full"}
    return {
        "number": number,
        "job_id": f"job_{number}",
        "state": state,
        "value": value,
        "values": None if value is None else [value],
        "is_safe": True,
        "hyperparameters": {**point, "optimizer__name": ("sgd", "adam")[number % 2]},
        "rungs": [],
        "charged_micro_usd": 100,
        **more,
    }


@pytest.fixture
def studied(platform: FakePlatform) -> Callable[..., None]:
    def prepare(*trials: dict[str, Any], **spec: Any) -> None:
        job = {"metric": {"name": "loss", "goal": "minimize"}}
        study = make_study(
            "completed",
            name="search",
            goal="minimize",
            sampler="tpe",
            spec={"job": job, "space": SPACE, **spec},
            num_stopped=1,
        )
        platform.on("GET", PATH, study)
        half = len(trials) // 2
        pages = {"trials": trials[:half], "next": "n"}, {"trials": trials[half:], "next": None}
        platform.on("GET", f"{PATH}/trials", *pages, *pages)

    return prepare


def load(file: Path) -> optuna.Study:
    (name,) = optuna.get_all_study_names(address(file))
    return optuna.load_study(study_name=name, storage=address(file))


def test_optunas_own_tools_read_an_exported_study(
    cli: RunCli, studied: Callable[..., None], tmp_path: Path
) -> None:
    done = [make_trial(number, "completed", (number - 7) ** 2 / 100) for number in range(16)]
    rungs = [{"step": 10, "value": 0.9}, {"step": 30, "value": None}]
    others = [
        make_trial(16, "stopped", rungs=rungs, why="the model expects most here", parent=3),
        make_trial(17, "failed", detail="exit code 1"),
        make_trial(18, "proposed"),
        make_trial(19, "paused", rungs=rungs[:1]),
        make_trial(20, "completed", -5.0, is_safe=False),
    ]
    studied(*done, *others)
    file = tmp_path / "search.db"
    ran = cli("study", "export", STUDY_ID, "--optuna", str(file))
    assert (ran.code, ran.out) == (0, f"21 trials in sqlite:///{file}\n")
    assert [one.name for one in tmp_path.iterdir()] == ["search.db"]

    study = load(file)
    assert study.study_name == "search"
    assert [trial.state.name for trial in study.trials[16:]] == [
        *("PRUNED", "FAIL", "RUNNING", "RUNNING", "COMPLETE")
    ]
    best = study.best_trial  # the last one is better, and breaks the safety limit
    assert (best.number, best.value) == (7, 0.0)
    assert best.params == done[7]["hyperparameters"]
    assert best.user_attrs["job_id"] == "job_7"
    stopped = study.trials[16]
    assert stopped.intermediate_values[10] == 0.9
    assert set(stopped.intermediate_values) == {10, 30}
    assert stopped.user_attrs["parent"] == 3
    rate = best.distributions["rate"]
    assert rate == optuna.distributions.FloatDistribution(0.001, 0.1, log=True)
    importances = optuna.importance.get_param_importances(study)
    assert set(importances) >= {"rate", "depth"}


def test_an_export_has_every_objective(
    cli: RunCli, studied: Callable[..., None], tmp_path: Path
) -> None:
    trials = [make_trial(0, "completed", 0.5, values=[0.5, 90.0])]
    trials.append(make_trial(1, "completed", 0.4, values=[0.4, 80.0]))
    studied(*trials, objectives=[{"name": "accuracy", "goal": "maximize"}])
    file = tmp_path / "search.db"
    assert cli("study", "export", STUDY_ID, "--optuna", str(file)).code == 0
    study = load(file)
    assert [one.name for one in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert sorted(trial.number for trial in study.best_trials) == [0, 1]


def test_an_export_replaces_no_file_without_being_told(
    cli: RunCli, studied: Callable[..., None], tmp_path: Path
) -> None:
    studied(make_trial(0, "completed", 0.5), make_trial(1, "completed", 0.4))
    file = tmp_path / "search.db"
    file.write_text("mine")
    ran = cli("study", "export", STUDY_ID, "--optuna", str(file))
    assert (ran.code, file.read_text()) == (2, "mine")
    assert "--overwrite" in ran.err
    assert cli("study", "export", STUDY_ID, "--optuna", str(file), "--overwrite").code == 0
    assert load(file).best_value == 0.4


def test_studies_are_compared_by_the_best_of_as_many_trials(
    cli: RunCli, studied: Callable[..., None]
) -> None:
    values = [0.9, 0.8, 0.7, 0.75, 0.6, 0.5]
    trials = [make_trial(number, "completed", value) for number, value in enumerate(values)]
    studied(*trials, make_trial(6, "completed", 0.1, is_safe=False))
    ran = cli("study", "compare", STUDY_ID, STUDY_ID, "--output", "json")
    first, second = json.loads(ran.out)
    assert first["best_after"] == {"5": 0.6, "7": 0.5}
    assert (first["best_value"], first["num_stopped"], first["charged_micro_usd"]) == (0.5, 1, 700)
    assert second["study_id"] == STUDY_ID
    studied(*trials)
    table = cli("study", "compare", STUDY_ID, STUDY_ID).out
    assert [line.split() for line in table.splitlines() if "of 5 trials" in line] == [
        ["of", "5", "trials", "0.6", "0.6"]
    ]
    assert cli("study", "compare", STUDY_ID).code == 2


def test_a_study_shows_all_objectives_its_front_what_ended_it_and_which_trials_break_its_safety(
    cli: RunCli, platform: FakePlatform
) -> None:
    trials = [
        {**make_trial(0, "completed", 0.5, values=[0.5, 12.0]), "rank": 1},
        {**make_trial(1, "completed", 0.25, values=[0.25, 99.0], is_safe=False), "rank": None},
    ]
    study = make_study("completed", trials=trials, pareto=[0], ended_by="device_hours")
    platform.on("GET", PATH, study)
    lines = [line.split() for line in cli("study", "show", STUDY_ID).out.splitlines()]
    assert ["pareto", "trials", "0"] in lines
    assert ["ended", "by", "device", "hours"] in lines
    shown = [line for line in lines if "completed" in " ".join(line[2:3])]
    assert [line[:5] for line in shown] == [
        ["1", "0", "completed", "0.5,", "12"],
        ["-", "1", "completed,", "unsafe", "0.25,"],
    ]


def test_a_watch_needs_a_terminal(cli: RunCli) -> None:
    ran = cli("study", "show", STUDY_ID, "--watch")
    assert (ran.code, "--watch needs a terminal" in ran.err) == (2, True)


def test_an_exported_study_is_imported_with_its_finished_trials(
    cli: RunCli, platform: FakePlatform, studied: Callable[..., None], tmp_path: Path
) -> None:
    studied(make_trial(0, "completed", 0.5), make_trial(1, "failed"), make_trial(2, "proposed"))
    storage, file = tmp_path / "search.db", tmp_path / "study.yaml"
    assert cli("study", "export", STUDY_ID, "--optuna", str(storage)).code == 0
    file.write_text(STUDY)
    platform.on("POST", "/v1/studies/import", make_study("running"))
    ran = cli("study", "import", str(storage), str(file))
    assert (ran.code, ran.out.split()[0]) == (0, STUDY_ID)
    assert "not imported: 1 trials" in ran.err
    (body,) = platform.bodies("/v1/studies/import")
    assert body["spec"]["name"] == "search"
    done, failed = body["trials"]
    assert done["values"] == [0.5]
    assert done["hyperparameters"] == make_trial(0, "completed")["hyperparameters"]
    assert "values" not in failed


def test_an_unsafe_trial_is_imported_as_failed(
    cli: RunCli, platform: FakePlatform, studied: Callable[..., None], tmp_path: Path
) -> None:
    """In a study without a safety metric it could win."""
    studied(make_trial(0, "completed", 0.5), make_trial(1, "completed", 0.1, is_safe=False))
    storage, file = tmp_path / "search.db", tmp_path / "study.yaml"
    assert cli("study", "export", STUDY_ID, "--optuna", str(storage)).code == 0
    file.write_text(STUDY)
    platform.on("POST", "/v1/studies/import", make_study("running"))
    assert cli("study", "import", str(storage), str(file)).code == 0
    (body,) = platform.bodies("/v1/studies/import")
    assert ["values" in trial for trial in body["trials"]] == [True, False]


def test_values_of_the_safety_metric_go_to_optuna_and_back(
    cli: RunCli, platform: FakePlatform, studied: Callable[..., None], tmp_path: Path
) -> None:
    safety = {"metric": "memory", "min": 1.0, "max": 4.0}
    trials = [
        make_trial(0, "completed", 0.5, safety=3.5),
        make_trial(1, "completed", 0.1, is_safe=False, safety=6.0),
        make_trial(2, "completed", 0.2, is_safe=False, safety=0.5),
        make_trial(3, "completed", 0.3, is_safe=False, safety=None),
    ]
    studied(*trials, safety=safety)
    storage, file = tmp_path / "search.db", tmp_path / "study.yaml"
    assert cli("study", "export", STUDY_ID, "--optuna", str(storage)).code == 0
    exported = load(storage)
    assert exported.best_trial.number == 0, "the others are infeasible"
    broken_by = [trial.constraints["safety"] for trial in exported.trials]
    assert broken_by == [-0.5, 2.0, 0.5, 1.0]
    assert exported.trials[1].user_attrs["safety"] == 6.0
    assert exported.user_attrs["safety"] == safety

    file.write_text(STUDY)
    platform.on("POST", "/v1/studies/import", make_study("running"))
    bounds = "safety={metric: memory, max: 4}"
    assert cli("study", "import", str(storage), str(file), "--set", bounds).code == 0
    (body,) = platform.bodies("/v1/studies/import")
    assert [trial["values"] for trial in body["trials"]] == [[0.5], [0.1], [0.2], [0.3]]
    assert [trial["safety"] for trial in body["trials"]] == [3.5, 6.0, 0.5, None]


def test_trials_that_would_be_ranked_otherwise_are_refused(
    cli: RunCli, platform: FakePlatform, studied: Callable[..., None], tmp_path: Path
) -> None:
    studied(make_trial(0, "completed", 0.5))
    storage, file = tmp_path / "search.db", tmp_path / "study.yaml"
    assert cli("study", "export", STUDY_ID, "--optuna", str(storage)).code == 0
    for change, words in (
        ("job.metric.goal=maximize", "are to minimize, the study's to maximize"),
        ("safety={metric: memory, max: 4}", "no values of the safety metric"),
    ):
        file.write_text(STUDY)
        ran = cli("study", "import", str(storage), str(file), "--set", change)
        assert ran.code == 2, ran
        assert words in " ".join(ran.err.split())
    assert platform.bodies("/v1/studies/import") == []


def test_a_file_that_is_no_storage_is_refused(cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    assert cli("study", "import", str(tmp_path / "none.db"), str(file)).code == 2
    ran = cli("study", "import", str(file), str(file))
    assert (ran.code, "is no Optuna storage" in ran.err) == (2, True)


def test_a_file_that_is_read_stays_as_it_is(tmp_path: Path) -> None:
    """Optuna itself adds its tables to any database."""
    other, empty = tmp_path / "other?#.db", tmp_path / "empty.db"
    with closing(sqlite3.connect(other)) as connection:
        connection.execute("create table precious (a)")
    empty.touch()
    before = {file: file.read_bytes() for file in (other, empty)}
    for file in before:
        with pytest.raises(InvalidInput):
            read_finished(file, None)
    assert {file: file.read_bytes() for file in sorted(tmp_path.iterdir())} == before


def test_a_preview_says_what_a_study_would_use(
    cli: RunCli, platform: FakePlatform, tmp_path: Path
) -> None:
    span = {"low": 10.0, "likely": 20.0, "high": 30.0}
    unknown = {"device_hours": span, "cost_usd": {"low": 0.00057067, "likely": 1.5, "high": 2.0}}
    unknown |= {"hours": {"low": 0.0064, "likely": 0.5, "high": 1.25}}
    found = {"num_trials": 60, "rungs": [{"step": 100, "num_trials": span}], "steps": span}
    found |= {"steps_without_pruner": 90, "reached_limits": ["cost_usd"], "unknown": ["price"]}
    platform.on("POST", "/v1/studies/preview", found | unknown)
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    ran = cli("study", "preview", str(file))
    assert ran.code == 0
    assert "10 to 30, likely 20; 90 without a pruner" in ran.out
    assert re.search("device-hours +10 to 30, likely 20\n", ran.out)
    assert re.search(r"cost +\$0.000571 to \$2.00, likely \$1.50\n", ran.out)
    assert re.search("time +23 s to 1 h 15 min, likely 30 min\n", ran.out)
    assert re.search("not known +price", ran.out)
    assert platform.bodies("/v1/studies/preview")[0]["spec"]["name"] == "search"
