"""When a trial has reached a rung, and with which value of the judged metric.

A rung is a step at which the search judges the trial. It is reached once rank 0 has logged the
metric at that step or after it. It is also reached, perhaps without a value, when rank 0 has logged
something else at more than one rung's distance after it, or its run has ended after it. Only rank 0
counts: its batches come in order, those of a faster rank come earlier than its own.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Sample(NamedTuple):
    step: int
    attempt: int
    value: float


@dataclass(frozen=True, slots=True)
class Trial:
    """The job of a trial; the first `num_measured` of its ascending `rungs` are announced."""

    job_id: str
    tenant_id: str
    study_id: str
    number: int
    metric: str
    rungs: tuple[int, ...]
    num_measured: int = 0
    is_ended: bool = False


@dataclass(frozen=True, slots=True)
class Reached:
    """How far rank 0 has logged: the judged metric, and anything. -1: nothing."""

    metric_step: int = -1
    step: int = -1


def rungs_reached(trial: Trial, reached: Reached) -> Sequence[int]:
    """The rungs to announce now, ascending."""
    found = []
    for index in range(trial.num_measured, len(trial.rungs)):
        rung = trial.rungs[index]
        is_passed = reached.step >= (rung if trial.is_ended else _passed_at(trial.rungs, index))
        if reached.metric_step < rung and not is_passed:
            break
        found.append(rung)
    return found


def _passed_at(rungs: Sequence[int], index: int) -> int:
    """One rung's distance after this one is over at this step."""
    if index + 1 < len(rungs):
        return rungs[index + 1] + 1
    return 2 * rungs[index] - (rungs[index - 1] if index else 0) + 1


def value_at(rung: int, samples: Iterable[Sample]) -> Sample | None:
    """The sample of the highest step up to the rung, else of the first after it.

    Of one step that several attempts logged, the newest counts; within one, what came last.
    """
    best: Sample | None = None
    for sample in samples:
        if best is None or _rank(rung, sample) >= _rank(rung, best):
            best = sample
    return best


def _rank(rung: int, sample: Sample) -> tuple[bool, int, int]:
    is_before = sample.step <= rung
    return (is_before, sample.step if is_before else -sample.step, sample.attempt)


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
