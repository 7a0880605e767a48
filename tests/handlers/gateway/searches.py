"""Studies that stop, pause and copy trials, as the events of their search tell them."""

import math
import random
from typing import Any

from drivetrain_schemas.ids import study_id_for
from drivetrain_schemas.jobs import TrialOf
from drivetrain_schemas.studies import StudyCompleted, StudySpec, StudyStarted
from drivetrain_schemas.trials import (
    TrialCompleted,
    TrialFailed,
    TrialJudged,
    TrialPaused,
    TrialPromoted,
    TrialProposed,
    TrialStopped,
    TrialStopping,
)
from tests.handlers.gateway.story import JobStory, Story, spec

RUNGS = (10, 30, 90)
SPACE = {
    "learning_rate": {"type": "uniform", "low": 0.0001, "high": 0.3, "log": True},
    "width": {"type": "integer", "low": 8, "high": 512},
    "optimizer": {"type": "choice", "values": ["sgd", "adam", "lion"]},
}


def study_spec(name: str, **changes: Any) -> StudySpec:
    fields = {
        "name": name,
        "job": spec("trial", max_steps=270, checkpoint={"every_steps": 10}).model_dump(mode="json"),
        "space": SPACE,
        "max_trials": 400,
        "max_parallel_trials": 8,
        "pruner": {"type": "asha", "min_steps": 10},
    }
    return StudySpec.model_validate({**fields, **changes})


class SearchStory:
    """One study of a story; trials are told about by their numbers."""

    def __init__(self, story: Story, name: str, *, with_jobs: bool = True, **changes: Any) -> None:
        self.story = story
        self.name = name
        self.with_jobs = with_jobs
        self.spec = study_spec(name, **changes)
        self.study_id = study_id_for(story.tenant_id, name)
        self.points: dict[int, dict[str, Any]] = {}
        self.job_ids: dict[int, str] = {}
        self.jobs: dict[int, JobStory] = {}
        self.best = -math.inf
        self.completed = self.stopped = self.failed = 0
        started = {"study_id": self.study_id, "request_id": name, "spec": self.spec}
        story.tell(StudyStarted(**started, num_trials=self.spec.max_trials, started_at=story.now))

    def _about(self, number: int) -> dict[str, Any]:
        return {"study_id": self.study_id, "number": number, "job_id": self.job_ids[number]}

    def proposes(self, number: int, point: dict[str, Any], **more: Any) -> None:
        self.points[number] = point
        name = f"{self.name}-{number}"
        if self.with_jobs:
            trial = TrialOf(study_id=self.study_id, number=number)
            job = self.story.job(name, trial, resources={"devices": 1}, max_steps=270)
            job.starts()
            self.jobs[number], self.job_ids[number] = job, job.job_id
        else:
            self.job_ids[number] = "job_" + f"{number:026d}".translate(
                str.maketrans("0189", "abcd")
            )
        rungs = more.pop("rungs", RUNGS)
        self.story.tell(
            TrialProposed(**self._about(number), hyperparameters=point, rungs=rungs, **more)
        )

    def judges(self, number: int, step: int, value: float | None, verdict: str, **of: Any) -> None:
        reason = of.pop("reason", "not among the best third at this rung")
        self.story.tell(
            TrialJudged(
                **self._about(number), step=step, value=value, verdict=verdict, reason=reason, **of
            )
        )

    def stops(self, number: int, step: int, value: float, *, fully: bool = True) -> None:
        reason = f"not among the best third at step {step}"
        self.story.tell(TrialStopping(**self._about(number), reason=reason))
        if fully:
            self.stopped += 1
            point = {"hyperparameters": self.points[number], "step": step, "value": value}
            self.story.tell(TrialStopped(**self._about(number), **point, reason=reason))

    def pauses(self, number: int, step: int) -> None:
        reason = f"waits at step {step} for more trials"
        self.story.tell(TrialPaused(**self._about(number), step=step, reason=reason))

    def promotes(self, number: int) -> None:
        why = "among the best third of its rung by now"
        self.story.tell(TrialPromoted(**self._about(number), why=why))

    def completes(self, number: int, *values: float, is_safe: bool = True) -> None:
        is_best = is_safe and values[0] > self.best
        self.best = max(self.best, values[0]) if is_safe else self.best
        self.completed += 1
        self.story.tell(
            TrialCompleted(
                **self._about(number),
                hyperparameters=self.points[number],
                value=values[0],
                values=values,
                is_best=is_best,
                is_safe=is_safe,
                safety=None if is_safe else 64.0,
            )
        )

    def fails(self, number: int, detail: str = "exit code 1") -> None:
        self.failed += 1
        point = {"hyperparameters": self.points[number], "detail": detail}
        self.story.tell(TrialFailed(**self._about(number), **point))

    def ends(self, number: int, value: float, **more: Any) -> None:
        self.story.tell(
            StudyCompleted(
                study_id=self.study_id,
                num_completed=self.completed,
                num_failed=self.failed,
                num_stopped=self.stopped,
                best_number=number,
                best_job_id=self.job_ids[number],
                best_value=value,
                metric=self.spec.job.metric,
                finished_at=self.story.now,
                **more,
            )
        )


def draw_point(chance: random.Random) -> dict[str, Any]:
    return {
        "learning_rate": float(f"{10 ** chance.uniform(-4, -0.53):.5g}"),
        "width": chance.randint(8, 512),
        "optimizer": chance.choice(["sgd", "adam", "lion"]),
    }


def quality(point: dict[str, Any], chance: random.Random) -> float:
    """What a trial with this point reaches at its end."""
    rate = -((math.log10(point["learning_rate"]) + 2) ** 2) * 0.09
    kind = {"sgd": 0.0, "adam": 0.03, "lion": 0.02}[point["optimizer"]]
    return round(0.93 + rate + kind + chance.gauss(0, 0.01), 5)


def asha(story: Story, num_trials: int, name: str = "asha", **changes: Any) -> SearchStory:
    """A study with early stops: at each rung what is not among the best third so far stops."""
    chance = random.Random(num_trials)
    study = SearchStory(story, name, **changes)
    reached: dict[int, list[float]] = {rung: [] for rung in RUNGS}
    for number in range(num_trials):
        point = draw_point(chance)
        study.proposes(number, point, why="drawn at random: fewer than 20 trials have ended")
        final = quality(point, chance)
        is_running = number >= num_trials - 6
        for rung in RUNGS[: 1 + number % 2] if is_running else RUNGS:
            value = round(final - 0.4 / math.sqrt(rung), 5)
            seen = reached[rung]
            seen.append(value)
            rank = 1 + sum(other > value for other in seen)
            keep = max(1, len(seen) // 3)
            goes_on = is_running or rank <= keep
            study.judges(
                number,
                rung,
                value,
                "continue" if goes_on else "stop",
                threshold=sorted(seen)[-keep],
                rank=rank,
                num_ranked=len(seen),
            )
            story.wait(2)
            if not goes_on:
                study.stops(number, rung, value)
                break
        else:
            if is_running:
                continue
            if number % 97 == 50:
                study.fails(number)
            else:
                study.completes(number, final)
    return study


def population(story: Story, name: str = "population") -> SearchStory:
    """Eight trials, of which the worst two continue from the best two's checkpoints, four times."""
    chance = random.Random(8)
    pruner = {"type": "population", "every_steps": 50, "size": 8}
    study = SearchStory(story, name, pruner=pruner)
    steps = (50, 100, 150, 200, 250)
    alive = {}
    for number in range(8):
        point = draw_point(chance)
        study.proposes(number, point, rungs=steps, why="one of the first population")
        alive[number] = quality(point, chance) - 0.2
    following = 8
    for step in steps[:4]:
        for number in alive:
            alive[number] = round(alive[number] + 0.03 * chance.random(), 5)
        order = sorted(alive, key=lambda number: -alive[number])
        for rank, number in enumerate(order, start=1):
            verdict = "stop" if rank > 6 else "continue"
            study.judges(number, step, alive[number], verdict, rank=rank, num_ranked=8)
        for parent, loser in zip(order[:2], order[6:], strict=True):
            study.stops(loser, step, alive.pop(loser))
            rate = {"learning_rate": study.points[parent]["learning_rate"] * 1.2}
            point = {**study.points[parent], **rate}
            study.proposes(
                following, point, parent=parent, rungs=steps, why=f"trial {parent}, perturbed"
            )
            alive[following] = alive[parent]
            following += 1
        story.wait(30)
    for number, value in alive.items():
        study.completes(number, value)
    return study


def two_objectives(story: Story, num_trials: int = 60, name: str = "two") -> SearchStory:
    """Accuracy against latency, and a safety limit that some trials break."""
    chance = random.Random(60)
    study = SearchStory(
        story,
        name,
        pruner=None,
        objectives=[{"name": "latency_ms", "goal": "minimize"}],
        safety={"metric": "memory_gb", "max": 40},
    )
    for number in range(num_trials):
        point = draw_point(chance)
        study.proposes(number, point, rungs=())
        accuracy = quality(point, chance) - 20 / point["width"]
        latency = round(2 + point["width"] / 40 + chance.random(), 3)
        story.wait(10)
        study.completes(number, round(accuracy, 5), latency, is_safe=number % 10 != 3)
    return study
