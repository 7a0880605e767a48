"""Searches that stop and pause trials, on a running platform, while hpo is killed."""

from pathlib import Path
from typing import Any

import pytest

from tests.running_study import RunningStudy
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

SCRIPT = (Path(__file__).parents[1] / "jobs" / "search.py").read_text()


def submit_search(
    platform: StandalonePlatform, pruner: dict[str, Any], **spec: Any
) -> RunningStudy:
    """A study of `jobs/search.py`."""
    job = TrainingJob.spec(
        platform,
        f"search {pruner['type']}",
        SCRIPT,
        max_steps=spec.pop("max_steps"),
        metric={"name": "loss", "goal": "minimize"},
        resources={"devices": 1},
        checkpoint={"every_steps": 10},
        hyperparameters={"settle_seconds": spec.pop("settle_seconds", 0.0)},
    )
    return RunningStudy.submit(
        platform, {"name": job["name"], "job": job, "pruner": pruner, **spec}
    )


def states(trials: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(trial["state"], trial["job_state"]) for trial in trials]


def first_step(job: TrainingJob, attempt: int) -> int:
    """The first step that this attempt trained."""
    [pod] = job.pods(attempt)
    lines = (pod / "log").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("step ")))


@pytest.fixture(scope="module")
def studies(platform: StandalonePlatform) -> dict[str, RunningStudy]:
    """All at once; hpo is killed as soon as the first trial of each was judged."""

    def offsets(*values: float) -> dict[str, Any]:
        return {"offset": {"type": "choice", "values": list(values)}}

    def start(pruner: dict[str, Any], *values: float, **spec: Any) -> RunningStudy:
        common = {"sampler": "grid", "space": offsets(*values), "max_trials": len(values)}
        return submit_search(platform, pruner, **{**common, **spec})

    stopping = {"type": "asha", "min_steps": 10, "reduction_factor": 3}
    standing = {
        "stop": start(stopping, 0.1, 0.5, 0.9, max_steps=90),
        "pause": start(
            {**stopping, "mode": "pause"}, 0.5, 0.1, 0.9, max_steps=60, settle_seconds=60.0
        ),
    }
    wait_until(
        lambda: all(any(one["rung"] for one in study.trials()) for study in standing.values()),
        "a trial of each study is judged",
        seconds=240,
        every=0.3,
    )
    platform.kill("hpo")
    return standing


def test_stopped_trials_end_early_and_the_best_one_completes(
    studies: dict[str, RunningStudy],
) -> None:
    trials = studies["stop"].wait()
    assert states(trials) == [("completed", "succeeded"), *[("stopped", "stopped")] * 2]
    for trial in trials[1:]:
        assert trial["rung"] == 10
        assert trial["verdict"] == "stop"
        assert 10 <= trial["step"] < 90, "its devices were free long before its end"
        [stopped] = studies["stop"].job(trial).events("job.stopped")
        assert "number" in stopped["reason"]


def test_a_paused_trial_frees_its_slot_and_goes_on_from_its_checkpoint(
    studies: dict[str, RunningStudy],
) -> None:
    """Of three, one at a time: the second is the best, which is known when the third has come."""
    study = studies["pause"]
    study.wait()
    # Their jobs receive the stop once the study is complete.
    wanted = [("stopped", "stopped"), ("completed", "succeeded"), ("stopped", "stopped")]
    wait_until(lambda: states(study.trials()) == wanted, f"the jobs end as {wanted}")
    trials = study.trials()
    job = study.job(trials[1])
    types = [item["type"] for item in sorted(job.timeline(), key=lambda item: item["occurred_at"])]
    paused = types.index("job.paused")
    assert "allocation.released" in types[:paused]
    assert "allocation.granted" in types[paused:]
    [told] = job.events("job.paused")
    assert told["step"] >= 10
    assert first_step(job, attempt=2) == told["step"] + 1, "no step is repeated or left out"
    others = [study.job(trial).events("run.starting") for trial in trials]
    assert [len(runs) for runs in others] == [1, 2, 1]
