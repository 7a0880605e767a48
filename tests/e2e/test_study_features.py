"""What a running platform does with studies besides proposing trials: limits and commands, trials
that run elsewhere, imports, previews, and trials that begin from checkpoints of others.
"""

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.running_study import RunningStudy
from tests.standalone_platform import StandalonePlatform
from tests.strategy_job import loss_at
from tests.training_job import TrainingJob
from tests.waiting import wait_until

SCRIPT = (Path(__file__).parents[1] / "jobs" / "strategy.py").read_text()
METRIC = {"name": "loss", "goal": "minimize"}
SPACE = {"a": {"type": "uniform", "low": 0.1, "high": 0.9}, "b": {"type": "constant", "value": 0.5}}
FOREVER = 600.0

pytestmark = pytest.mark.heavy


def spec_of(
    platform: StandalonePlatform, name: str, settle_seconds: float, **fields: Any
) -> dict[str, Any]:
    """A study of `jobs/strategy.py`, whose trials wait so long after each rung."""
    job = TrainingJob.spec(
        platform,
        name,
        SCRIPT,
        max_steps=9,
        metric=METRIC,
        resources={"devices": 1},
        checkpoint={"every_steps": 1},
        hyperparameters={"settle_seconds": settle_seconds},
    )
    common = {"name": name, "job": job, "space": SPACE, "sampler": "random", "max_trials": 3}
    return {**common, **fields}


def external(platform: StandalonePlatform, name: str, **fields: Any) -> RunningStudy:
    """A study whose trials the test carries out."""
    common = {"name": name, "metric": METRIC, "space": SPACE, "external": True, "max_trials": 9}
    return RunningStudy.submit(platform, {**common, **fields})


def cli(platform: StandalonePlatform, *arguments: str, is_refused: bool = False) -> str:
    """What `drivetrain` prints, of a refusal the error."""
    done = subprocess.run(
        [sys.executable, "-m", "drivetrain.cli", *arguments],
        env={**os.environ, "DRIVETRAIN_HOME": str(platform.home)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode != 0) is is_refused, done.stderr
    return done.stderr if is_refused else done.stdout


def complete(study: RunningStudy, number: int, value: float) -> None:
    answer = study.post(f"trials/{number}/complete", values=[value])
    assert answer.status_code in (200, 202), answer.text


def ask(study: RunningStudy, request_id: str) -> dict[str, Any]:
    def suggested() -> Any:
        answer = study.post("suggest", request_id=request_id)
        return answer.json()["trial"]

    found: dict[str, Any] = wait_until(suggested, f"{request_id} is answered")
    return found


def test_limits_of_time_devices_and_money_end_studies(platform: StandalonePlatform) -> None:
    limits = {
        "hours": {"hours": 0.001},
        "device_hours": {"device_hours": 0.001},
        "cost": {"cost_usd": 1e-6},
    }
    studies = {
        ended_by: RunningStudy.submit(
            platform, spec_of(platform, f"limit {ended_by}", FOREVER, limits=limit)
        )
        for ended_by, limit in limits.items()
    }
    for ended_by, study in studies.items():
        [trial] = study.wait()
        assert trial["state"] == "stopped"
        assert study.state()["ended_by"] == ended_by
        assert trial["job_state"] == "stopped"


def test_a_paused_study_keeps_checkpoints_and_no_devices_until_it_is_resumed(
    platform: StandalonePlatform,
) -> None:
    study = RunningStudy.submit(platform, spec_of(platform, "pause", 2.0, max_trials=1))
    job = wait_until(
        lambda: next(
            (study.job(one) for one in study.trials() if study.job(one).step() >= 3), None
        ),
        "the trial makes steps",
        seconds=120,
    )
    study.command("pause", trials="pause")
    wait_until(lambda: job.state()["state"] == "paused", "its job is paused")
    study.command("resume")
    [trial] = study.wait()
    assert trial["state"] == "completed"
    assert [item["step"] for item in job.events("checkpoint.restored")] == [
        job.events("job.paused")[0]["step"]
    ]


def test_a_trial_of_a_population_begins_with_the_weights_of_its_parent(
    platform: StandalonePlatform, tmp_path: Path
) -> None:
    population = {"type": "population", "every_steps": 3, "size": 3, "quantile": 0.34}
    spec = spec_of(platform, "population", 0.0, max_trials=4, max_parallel_trials=3)
    spec["job"]["hyperparameters"]["limits"] = str(tmp_path)
    study = RunningStudy.submit(platform, {**spec, "pruner": population})

    def with_jobs(count: int) -> list[dict[str, Any]]:
        trials = [trial for trial in study.trials() if trial["job_id"]]
        return trials if len(trials) == count else []

    three = wait_until(lambda: with_jobs(3), "three trials have jobs")
    # The worst comes to the rung last: a trial is ranked among those that were there before it.
    first = sorted(three, key=lambda trial: loss_at(3, trial["hyperparameters"]))
    for trial in first:
        (tmp_path / trial["job_id"]).write_text("3")
        number = trial["number"]
        wait_until(
            functools.partial(is_measured, study, number), f"{number} is judged", seconds=120
        )
    best, _, worst = (trial["number"] for trial in first)
    *_, last = wait_until(lambda: with_jobs(4), "another takes its place")
    (tmp_path / last["job_id"]).write_text("9")
    wait_until(lambda: study.job(last).step() >= 4, "it goes on from its parent", seconds=120)
    (tmp_path / three[best]["job_id"]).write_text("9")
    (tmp_path / first[1]["job_id"]).write_text("9")
    trials = study.wait()
    assert trials[worst]["state"] == "stopped"
    child, parent = trials[3], trials[best]
    assert child["parent"] == best
    lines = (study.job(child).pods()[0] / "log").read_text().splitlines()
    weight = float(next(line for line in lines if line.startswith("began with")).split()[-1])
    assert weight == pytest.approx(3 * parent["hyperparameters"]["a"], rel=1e-4)
    assert "step 4" in lines
    assert "step 3" not in lines, "it does not repeat the steps of its parent"
    assert child["hyperparameters"]["a"] != parent["hyperparameters"]["a"]


def is_measured(study: RunningStudy, number: int) -> bool:
    return bool(study.stored().trials[number].measured)


def test_trials_elsewhere_are_asked_for_reported_stopped_and_completed(
    platform: StandalonePlatform,
) -> None:
    pruner = {"type": "median", "every_steps": 1, "min_trials": 1}
    study = external(platform, "elsewhere", max_trials=2, max_steps=3, pruner=pruner)
    first = ask(study, "worker/0")
    assert ask(study, "worker/0")["number"] == first["number"] == 0
    assert study.post("trials/0/report", step=1, value=0.1).json()["should_stop"] is False
    assert study.post("trials/0/complete", values=[0.1]).status_code in (200, 202)
    second = ask(study, "worker/1")
    assert second["number"] == 1
    study.post("trials/1/report", step=1, value=0.9)
    told = wait_until(
        lambda: (now := platform.get(f"{study.path}/trials/1/should-stop"))["should_stop"] and now,
        "the poor trial is to stop",
    )
    assert (told["rung"], told["threshold"]) == (1, 0.1)
    study.post("trials/1/complete", is_stopped=True)
    assert [trial["state"] for trial in study.wait()] == ["completed", "stopped"]
    assert study.state()["best_number"] == 0


@pytest.mark.parametrize(
    ("limits", "results", "state", "ended_by"),
    [
        ({"no_improvement": {"trials": 2}}, [[0.1], [0.2], [0.3]], "completed", "no_improvement"),
        ({"failed_trials": 2}, [[0.1], None, None], "failed", None),
    ],
)
def test_limits_of_results_end_a_study(
    platform: StandalonePlatform,
    limits: dict[str, Any],
    results: list[list[float] | None],
    state: str,
    ended_by: str | None,
) -> None:
    study = external(platform, "results", limits=limits)
    for place, values in enumerate(results):
        number = ask(study, f"worker/{place}")["number"]
        study.post(f"trials/{number}/complete", **({"values": values} if values else {}))
    wait_until(lambda: study.state()["state"] == state, f"the study is {state}")
    assert study.state()["ended_by"] == ended_by
    assert study.post("suggest", request_id="late").status_code == 409


def test_finished_trials_begin_a_study_and_a_preview_starts_nothing(
    platform: StandalonePlatform,
) -> None:
    job = {"name": "fit", "command": ["true"], "metric": METRIC, "max_steps": 9}
    spec = {"name": "imported", "metric": METRIC, "space": SPACE, "external": True, "max_trials": 3}
    done = [{"hyperparameters": {"a": 0.3, "b": 0.5}, "values": [0.25]}]
    with platform.client() as client:
        imported = client.post("/v1/studies/import", json={"spec": spec, "trials": done})
        asha = {"type": "asha", "min_steps": 1}
        planned = {"name": "plan", "job": job, "space": SPACE, "pruner": asha, "max_trials": 9}
        preview = client.post("/v1/studies/preview", json={"spec": planned})
        named = client.get("/v1/studies", params={"name": "plan"})
    assert imported.status_code in (201, 202), imported.text
    study = RunningStudy(platform, imported.json()["study_id"])
    assert ask(study, "next")["number"] == 1
    study.command("stop")
    assert study.trials()[0]["value"] == 0.25
    study.post("trials/1/complete", is_stopped=True)
    study.wait()
    assert study.state()["best_number"] == 0
    assert preview.status_code == 200, preview.text
    assert preview.json()["num_trials"] == 9
    assert named.json()["studies"] == []


def test_numbers_change_while_a_study_runs_and_after_its_end_and_it_says_what_comes_next(
    platform: StandalonePlatform,
) -> None:
    study = external(platform, "changed", sampler="random")

    def follows(text: str) -> dict[str, Any]:
        def said() -> Any:
            found = platform.get(f"{study.path}/insight")["next"]
            return found if found and text in found["sentence"] else None

        step: dict[str, Any] = wait_until(said, f"what comes next is: {text}")
        return step

    for number, value in ((0, 0.3), (1, 0.2)):
        step = follows(f"trial {number}, a new point: drawn at random.")
        assert step["next"]["number"] == number
        assert 0.1 <= step["next"]["hyperparameters"]["a"] <= 0.9
        assert step["next"]["why"]
        assert ask(study, f"worker/{number}")["hyperparameters"] == step["next"]["hyperparameters"]
        if number == 0:
            complete(study, 0, value)
    refused = cli(platform, "study", "extend", study.study_id, "--max-trials", "1", is_refused=True)
    assert "below the number of trials proposed so far, 2" in refused
    cli(platform, "study", "extend", study.study_id, "--max-trials", "2")
    follows("every trial was started")
    assert study.post("suggest", request_id="third").status_code == 409
    complete(study, 1, 0.2)
    study.wait()
    assert (study.state()["ended_by"], study.state()["best_number"]) == ("max_trials", 1)

    cli(platform, "study", "extend", study.study_id, "--max-trials", "3")
    assert ask(study, "third")["number"] == 2
    complete(study, 2, 0.1)
    wait_until(lambda: study.state()["best_number"] == 2, "the third is the best")
    assert len(study.wait()) == 3


def test_a_cancelled_study_ends_its_running_trials_and_starts_no_others(
    platform: StandalonePlatform,
) -> None:
    study = RunningStudy.submit(platform, spec_of(platform, "cancelled", FOREVER))
    wait_until(
        lambda: any(trial["job_state"] == "running" for trial in study.trials()),
        "a trial runs",
        seconds=120,
    )
    cli(platform, "study", "cancel", study.study_id, "--reason", "another idea")
    wait_until(lambda: study.state()["state"] == "cancelled", "the study is cancelled", seconds=60)
    [trial] = study.trials()
    assert (trial["state"], trial["job_state"]) == ("failed", "cancelled")
    refused = cli(platform, "study", "extend", study.study_id, "--max-trials", "9", is_refused=True)
    assert "cancelled" in refused


def test_a_study_moves_from_optuna_here_and_back(
    platform: StandalonePlatform, tmp_path: Path
) -> None:
    theirs = optuna.create_study(storage=f"sqlite:///{tmp_path}/theirs.db", study_name="theirs")

    def objective(trial: optuna.Trial) -> float:
        a, b = trial.suggest_float("a", 0.1, 0.9), trial.suggest_categorical("b", ["x", "y"])
        if trial.number == 1:
            raise ValueError
        return (a - 0.3) ** 2 + (b == "y")

    theirs.optimize(objective, n_trials=5, catch=ValueError)
    space = {"a": SPACE["a"], "b": {"type": "choice", "values": ["x", "y"]}}
    limits = {"failed_trials": 1}
    common = {"metric": METRIC, "external": True, "max_trials": 6, "limits": limits}
    file = tmp_path / "study.yaml"
    file.write_text(json.dumps({"name": "moved", "space": space, **common}))
    printed = cli(platform, "study", "import", f"{tmp_path}/theirs.db", str(file))
    study = RunningStudy(platform, printed.split()[0])
    number = ask(study, "next")["number"]
    assert number == 5, "a failure elsewhere is none that the study allows"
    trials = sorted(study.trials(), key=lambda trial: trial["number"])
    for trial, other in zip(trials, theirs.trials, strict=False):
        assert trial["value"] == other.value
        assert trial["hyperparameters"] == pytest.approx(other.params)
    complete(study, number, -1.0)
    study.wait()

    cli(platform, "study", "export", study.study_id, "--optuna", f"{tmp_path}/back.db")
    back = optuna.load_study(study_name=None, storage=f"sqlite:///{tmp_path}/back.db")
    assert [one.value for one in back.trials[:5]] == [one.value for one in theirs.trials]
    assert (back.best_trial.number, back.best_value) == (5, -1.0)


def test_a_search_hears_of_each_rung_once_and_pauses_and_promotes_its_trials(
    platform: StandalonePlatform,
) -> None:
    metric = {"name": "loss", "goal": "minimize"}
    few = {"max_steps": 60, "resources": {"devices": 1}, "checkpoint": {"every_steps": 10}}
    spec = {
        "name": "asha",
        "job": TrainingJob.spec(platform, "asha", metric=metric, **few),
        "space": {"pause_seconds": {"type": "uniform", "low": 0.03, "high": 0.08}},
        "max_trials": 4,
        "max_parallel_trials": 2,
        "pruner": {"type": "asha", "min_steps": 10, "reduction_factor": 2, "mode": "pause"},
    }
    with platform.client() as client:
        study_id = client.post("/v1/studies", json={"spec": spec}).json()["study_id"]

    def ended() -> dict[str, Any] | None:
        study = platform.get(f"/v1/studies/{study_id}")
        return study if study["finished_at"] else None

    study = wait_until(ended, "the study ends", seconds=180, every=0.5)
    assert study["state"] == "completed"
    jobs = [TrainingJob(platform, trial["job_id"]) for trial in study["trials"]]
    rungs = [[event["step"] for event in job.events("trial.measured")] for job in jobs]
    assert len(rungs) == 4
    assert all(found == [10, 20, 40][: len(found)] for found in rungs)
    assert all(found for found in rungs)
    promoted = [job for job in jobs if job.events("job.resumed")]
    assert promoted, "a trial was paused, and goes on from its checkpoint"
    assert all(job.events("checkpoint.restored") for job in promoted)
