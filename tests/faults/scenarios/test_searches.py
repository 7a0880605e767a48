"""hpo, the scheduler and half of the trials are killed in the middle of each strategy.

Where one trial runs at a time, the order of results is one: the trials are those of an undisturbed
study, but for a stop that comes after its trial's end. Where several run, their order depends on
the machine: then the trials are exactly what the search's own log gives when it is replayed, and
each result in the log is that of its trial, so the log is one of the possible orders.
Population-based training needs several at a time.

Both kinds of studies of all strategies run at once, so that each failure strikes all of them.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.hpo.core import inputs
from services.hpo.core.trials import Trial, TrialState
from tests.faults import strikes
from tests.running_study import FINAL, RunningStudy
from tests.standalone_platform import StandalonePlatform
from tests.training_job import TrainingJob
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(900)

SCRIPT = (Path(__file__).parents[2] / "jobs" / "strategy.py").read_text()
MAX_STEPS, RUNG, MAX_TRIALS = 9, 3, 5
HALVING = {"min_steps": RUNG, "reduction_factor": 2}
EQUAL = {"every_steps": RUNG}
# Their points do not depend on results, and without a pruner nothing else does.
INDEPENDENT = ("grid", "random", "sobol")
QUIET_SECONDS = 8.0
RACING = {TrialState.STOPPED, TrialState.COMPLETED}
SAMPLERS = ("grid", "random", "sobol", "tpe", "gp", "cmaes", "auto")
PRUNERS: dict[str, dict[str, Any]] = {
    "median": {"type": "median", "min_trials": 2, **EQUAL},
    "percentile": {"type": "percentile", "percentile": 40, "min_trials": 2, **EQUAL},
    "patience": {"type": "patience", "rungs": 1, "min_improvement": 0.1, **EQUAL},
    "threshold": {"type": "threshold", "upper": 0.4, **EQUAL},
    "halving": {"type": "halving", **HALVING},
    "hyperband": {"type": "hyperband", **HALVING},
    "asha stop": {"type": "asha", **HALVING},
    "asha pause": {"type": "asha", "mode": "pause", **HALVING},
    "pasha": {"type": "pasha", **HALVING},
    "pruner auto": {"type": "auto"},
}
POPULATION = {"type": "population", "size": 3, "quantile": 0.34, **EQUAL}
STRATEGIES: dict[str, dict[str, Any]] = {
    **{name: {"sampler": name} for name in SAMPLERS},
    **{name: {"sampler": "random", "pruner": pruner} for name, pruner in PRUNERS.items()},
}
PARALLEL = {
    **{name: strategy for name, strategy in STRATEGIES.items() if name not in INDEPENDENT},
    "population": {"sampler": "random", "pruner": POPULATION},
}


@dataclass(frozen=True, slots=True)
class Searches:
    """The studies by strategy: one trial at a time, the same undisturbed, and several at a time."""

    undisturbed: dict[str, list[Trial]]
    struck: dict[str, RunningStudy]
    parallel: dict[str, RunningStudy]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandalonePlatform]:
    """A platform with devices for the trials of all studies at once."""
    platform = StandalonePlatform(tmp_path_factory.mktemp("wide") / "home", nodes=2, slots=32)
    platform.start()
    try:
        yield platform
    finally:
        platform.stop()


@pytest.fixture(scope="module")
def searches(wide: StandalonePlatform, tmp_path_factory: pytest.TempPathFactory) -> Searches:
    hold = tmp_path_factory.mktemp("hold") / "hold"
    job = spec_of_job(wide, hold)
    undisturbed = start(wide, job, STRATEGIES, 1)
    before = {name: wait_trials(study) for name, study in undisturbed.items()}
    struck, parallel = start(wide, job, STRATEGIES, 1), start(wide, job, PARALLEL, 2)
    standing = [*struck.values(), *parallel.values()]
    wait_until(lambda: has_trials(standing, 2), "each study has trials", seconds=240, every=1.0)
    strike(wide, standing, hold)
    for study in standing:
        study.wait()
    return Searches(before, struck, parallel)


def spec_of_job(platform: StandalonePlatform, hold: Path) -> dict[str, Any]:
    return TrainingJob.spec(
        platform,
        "strategy",
        SCRIPT,
        max_steps=MAX_STEPS,
        metric={"name": "loss", "goal": "minimize"},
        resources={"devices": 1},
        checkpoint={"every_steps": 1, "keep_last": 2},
        hyperparameters={"hold": str(hold), "settle_seconds": 4.0, "rung": RUNG},
    )


def start(
    platform: StandalonePlatform,
    job: dict[str, Any],
    strategies: dict[str, dict[str, Any]],
    num_parallel: int,
) -> dict[str, RunningStudy]:
    number = {"type": "uniform", "low": 0.0, "high": 1.0, "num": 3}
    common = {
        "job": job,
        "space": {"a": number, "b": number},
        "max_trials": MAX_TRIALS,
        "max_parallel_trials": num_parallel,
        "seed": 5,
    }
    started = {}
    for name, strategy in strategies.items():
        spec = {"name": f"{name} {num_parallel}", **common, **strategy}
        if name == "population":
            spec["max_parallel_trials"] = POPULATION["size"]
        started[name] = RunningStudy.submit(platform, spec)
    return started


def strike(platform: StandalonePlatform, studies: list[RunningStudy], hold: Path) -> None:
    """kill -9 of hpo, the scheduler and every second running trial, at one moment.

    Trials make no step until everything that was to be decided is decided and done: how long a
    service is away may not decide whether a trial ends before it is stopped.
    """
    hold.touch()
    running = wait_until(
        lambda: running_trials(studies), "a trial of each study runs", seconds=120, every=1.0
    )
    pods = [
        pid
        for job in running[::2]
        for attempt in (job.state()["attempt"],)
        for pid in (*job.ranks(attempt), *job.shims(attempt))
    ]
    parts = {part: platform.pid(part) for part in ("hpo", "scheduler")}
    strikes.kill([*parts.values(), *pods])
    for part, old in parts.items():
        platform.wait_ready(part, other_than=old)
    wait_quiet(studies)
    hold.unlink()


def wait_quiet(studies: list[RunningStudy]) -> None:
    """Wait until nothing has changed for some seconds, while no trial makes a step."""
    last, since = None, 0.0
    while last is None or time.monotonic() - since < QUIET_SECONDS:
        now = [study.trials() for study in studies]
        if now != last:
            last, since = now, time.monotonic()
        time.sleep(0.5)


def has_trials(studies: list[RunningStudy], least: int) -> bool:
    return all(len(study.trials()) >= least for study in studies)


def running_trials(studies: list[RunningStudy]) -> list[TrainingJob]:
    """Those of all studies that go on, once each has one."""
    found = []
    for study in studies:
        jobs = [study.job(one) for one in study.trials() if one["job_state"] == "running"]
        if not jobs and study.state()["state"] not in FINAL:
            return []
        found += jobs
    return found


def wait_trials(study: RunningStudy) -> list[Trial]:
    study.wait()
    return study.stored().trials


@pytest.mark.parametrize("name", STRATEGIES)
def test_trials_one_at_a_time_are_those_of_an_undisturbed_study(
    name: str, searches: Searches
) -> None:
    trials, expected = searches.struck[name].stored().trials, searches.undisturbed[name]
    assert [known(trial) for trial in trials] == [known(trial) for trial in expected]
    for trial, other in zip(trials, expected, strict=True):
        # On a busy machine a stop may come after the end of its trial.
        assert trial == other or {trial.state, other.state} == RACING
    check_replay(searches.struck[name])


@pytest.mark.parametrize("name", PARALLEL)
def test_trials_several_at_a_time_are_those_of_a_possible_order(
    name: str, searches: Searches
) -> None:
    check_replay(searches.parallel[name])


def known(trial: Trial) -> tuple[Any, ...]:
    return trial.number, trial.point, trial.parent, trial.measured


def check_replay(study: RunningStudy) -> None:
    """The stored trials are what the log gives, and the log has only what the trials' jobs did."""
    stored = study.stored()
    assert list(stored.replayed.trials) == stored.trials
    assert stored.replayed.status == stored.status
    points = {trial.number: trial.point for trial in stored.trials}
    for given in stored.log:
        if isinstance(given, inputs.MeasuredAt):
            assert given.value == loss(points[given.number], given.step)
        if isinstance(given, inputs.Ended):
            assert given.values == (loss(points[given.number], MAX_STEPS),), given.detail
    ended = [given.number for given in stored.log if isinstance(given, inputs.Ended)]
    assert len(set(ended)) == len(ended), "a trial ends once"
    check_jobs(study, stored.trials)


def check_jobs(study: RunningStudy, trials: list[Trial]) -> None:
    """Each trial was carried out by one job, which ended as the trial did."""
    shown = study.trials()
    assert [one["number"] for one in shown] == [trial.number for trial in trials]
    ends = {TrialState.COMPLETED: "succeeded", TrialState.STOPPED: "stopped"}
    assert [one["job_state"] for one in shown] == [ends[trial.state] for trial in trials]
    assert len({one["job_id"] for one in shown}) == len(trials)


def loss(point: dict[str, float], step: int) -> float:
    """What `jobs/strategy.py` logs."""
    a, b = point["a"], point["b"]
    return pytest.approx((a - 0.3) ** 2 + (b - 0.7) ** 2 / 2 + (0.2 + a) / step, rel=1e-9)
