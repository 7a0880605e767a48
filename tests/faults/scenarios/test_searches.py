"""hpo, the scheduler and half of the trials are killed in the middle of each strategy.

Where one trial runs at a time, the order of results is one: the trials are those of an undisturbed
study. Where several run, their order depends on the machine: then the trials are exactly what the
search's own log gives when it is replayed, and each result in the log is that of its trial, so the
log is one of the possible orders. Population-based training needs several at a time.

No trial makes a step beyond a rung before its search has judged it there (`Pace`): how long a
service is away may not decide whether a trial ends before it is stopped.

Both kinds of studies of all strategies run at once, so that each failure strikes all of them.
"""

import asyncio
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from services.hpo.core import inputs
from services.hpo.core.trials import Trial, TrialState
from tests.faults import strikes
from tests.running_study import RunningStudy
from tests.standalone_platform import StandalonePlatform
from tests.strategy_job import loss_at
from tests.training_job import TrainingJob
from tests.waiting import wait_until

pytestmark = pytest.mark.timeout(900)

SCRIPT = (Path(__file__).parents[2] / "jobs" / "strategy.py").read_text()
MAX_STEPS, RUNG, MAX_TRIALS = 9, 3, 5
HALVING = {"min_steps": RUNG, "reduction_factor": 2}
EQUAL = {"every_steps": RUNG}
# Their points do not depend on results, and without a pruner nothing else does.
INDEPENDENT = ("grid", "random", "sobol")
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


class Pace:
    """Lets the trials of all studies make steps up to the next rung that was not judged.

    While `is_held`, those of a study that has several come no further than they are.
    """

    def __init__(self, platform: StandalonePlatform, directory: Path) -> None:
        self.directory = directory
        self.is_held = False
        self._dsn = platform.admin["postgres_dsn"]
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> "Pace":
        self.directory.mkdir()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    async def _run(self) -> None:
        connection = await asyncpg.connect(self._dsn)
        known: dict[str, int] = {}
        while not self._is_over.wait(0.2):
            rows = await connection.fetch(
                """
                select trial.job_id, trial.measured, opened, rungs, num_proposed
                from hpo.trials as trial join hpo.studies using (study_id)
                join gateway.trials as shown using (study_id, number)
                where trial.state = 'running'"""
            )
            for row in rows:
                if self.is_held and row["num_proposed"] > 1 and row["job_id"] in known:
                    continue
                limit = limit_of(row, known.get(row["job_id"]))
                if limit != known.get(row["job_id"]):
                    known[row["job_id"]] = limit
                    self._write(row["job_id"], limit)
        await connection.close()

    def _write(self, job_id: str, limit: int) -> None:
        partial = self.directory / f".{job_id}"
        partial.write_text(str(limit))
        partial.replace(self.directory / job_id)


def limit_of(row: asyncpg.Record, before: int | None) -> int:
    """The step that a running trial may come to; one without rungs stops for once on its way."""
    rungs = json.loads(row["rungs"] or "[]") or ([RUNG] if before is None else [])
    measured = [step for step, _ in json.loads(row["measured"])]
    phase = json.loads(row["opened"])[0] if row["opened"] else "running"
    if phase != "running":
        return before or 0
    return next((rung for rung in rungs if rung not in measured), MAX_STEPS)


@pytest.fixture(scope="module")
def searches(
    wide: StandalonePlatform, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Searches]:
    with Pace(wide, tmp_path_factory.mktemp("pace") / "limits") as pace:
        job = spec_of_job(wide, pace.directory)
        undisturbed = start(wide, job, STRATEGIES, 1)
        before = {name: wait_trials(study) for name, study in undisturbed.items()}
        pace.is_held = True
        struck, parallel = start(wide, job, STRATEGIES, 1), start(wide, job, PARALLEL, 2)
        standing = [*struck.values(), *parallel.values()]
        strike(wide, standing)
        pace.is_held = False
        for study in standing:
            study.wait()
        yield Searches(before, struck, parallel)


def spec_of_job(platform: StandalonePlatform, limits: Path) -> dict[str, Any]:
    return TrainingJob.spec(
        platform,
        "strategy",
        SCRIPT,
        max_steps=MAX_STEPS,
        metric={"name": "loss", "goal": "minimize"},
        resources={"devices": 1},
        checkpoint={"every_steps": 1, "keep_last": 2},
        hyperparameters={"limits": str(limits)},
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


def strike(platform: StandalonePlatform, studies: list[RunningStudy]) -> None:
    """kill -9 of hpo, the scheduler and every second running trial, at one moment."""
    running = wait_until(
        lambda: running_trials(studies), "each study runs a trial", seconds=240, every=0.5
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


def running_trials(studies: list[RunningStudy]) -> list[TrainingJob]:
    """Those of all studies, once each has one besides its first."""
    found = []
    for study in studies:
        trials = study.trials()
        jobs = [study.job(one) for one in trials if one["job_state"] == "running"]
        if not jobs or len(trials) < 2:
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
    assert trials == expected
    check_replay(searches.struck[name])


@pytest.mark.parametrize("name", PARALLEL)
def test_trials_several_at_a_time_are_those_of_a_possible_order(
    name: str, searches: Searches
) -> None:
    check_replay(searches.parallel[name])


def check_replay(study: RunningStudy) -> None:
    """The stored trials are what the log gives, and the log has only what the trials' jobs did."""
    stored = study.stored()
    assert list(stored.replayed.trials) == stored.trials
    assert stored.replayed.status == stored.status
    points = {trial.number: trial.point for trial in stored.trials}
    for given in stored.log:
        if isinstance(given, inputs.MeasuredAt):
            assert given.value == pytest.approx(loss_at(given.step, points[given.number]), rel=1e-9)
        if isinstance(given, inputs.Ended):
            expected = loss_at(MAX_STEPS, points[given.number])
            assert given.values == (pytest.approx(expected, rel=1e-9),), given.detail
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
