"""What a running platform does with studies besides proposing trials: limits and commands, trials
that run elsewhere, imports, previews, and trials that begin from checkpoints of others.
"""

from pathlib import Path
from typing import Any

import pytest

from tests.running_study import RunningStudy
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

SCRIPT = (Path(__file__).parents[1] / "jobs" / "strategy.py").read_text()
METRIC = {"name": "loss", "goal": "minimize"}
SPACE = {"a": {"type": "uniform", "low": 0.1, "high": 0.9}, "b": {"type": "constant", "value": 0.5}}
FOREVER = 600.0


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
    platform: StandalonePlatform,
) -> None:
    population = {"type": "population", "every_steps": 3, "size": 3, "quantile": 0.34}
    spec = spec_of(platform, "population", 6.0, max_trials=4, max_parallel_trials=3)
    study = RunningStudy.submit(platform, {**spec, "pruner": population})
    trials = study.wait()
    [child] = [trial for trial in trials if trial["parent"] is not None]
    assert child["number"] == 3
    parent = trials[child["parent"]]
    lines = (study.job(child).pods()[0] / "log").read_text().splitlines()
    weight = float(next(line for line in lines if line.startswith("began with")).split()[-1])
    first = int(next(line for line in lines if line.startswith("step ")).split()[1])
    assert first > 3, "it does not repeat the steps of its parent"
    assert weight == pytest.approx((first - 1) * parent["hyperparameters"]["a"], rel=1e-4)
    assert child["hyperparameters"]["a"] != parent["hyperparameters"]["a"]


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
