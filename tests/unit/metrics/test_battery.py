"""Shapes of healthy runs raise no alarm, and planted faults are found within so many steps.

A run is played second by second through the folds that the service uses: samples and heartbeats
into windows, windows into health, heartbeats into the pace, values against rules. Seeds are fixed.
"""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from drivetrain_schemas.ids import pod_id_for
from drivetrain_schemas.specs import JobSpec
from services.metrics.core.alerts import Heartbeat, Pace, advance, is_stalled
from services.metrics.core.health import Health, judge
from services.metrics.core.series import summarize
from services.metrics.core.watched import first_beyond, watched
from services.metrics.core.windows import WINDOW_SECONDS, Source, add_batch, add_heartbeat
from services.metrics.windows.store import StoredWindow, run_window
from tests.handlers.metrics.builders import JOB

NUM_STEPS = 2400
FAULT = 1500  # the step at which a fault is planted
NUM_OF_BATCH = 5  # samples come in batches of so many steps
POD = pod_id_for(JOB, 1, 0)
Values = dict[str, float]
Shape = Callable[[random.Random, int], Values]


@dataclass(frozen=True)
class Run:
    """One step a second. `seconds`: how long a step takes instead; `phase`: after such a step the
    program evaluates for 100 s, and is quiet for so long at a time."""

    shape: Shape
    spec: dict[str, Any] = field(default_factory=dict)
    seconds: Callable[[int], int] = lambda step: 1
    evaluates: Callable[[int], float | None] = lambda step: None


def alarms(run: Run, seed: int) -> list[tuple[str, int]]:
    """Each alert with the step at which it is raised first."""
    rng = random.Random(seed)
    spec = JobSpec.model_validate({"name": "t", "command": ["true"], **run.spec})
    player = _Player(spec)
    for step in range(1, NUM_STEPS + 1):
        quiet = run.evaluates(step)
        if quiet is not None:
            for second in range(100):
                player.beats(step, is_named=True, quiet_seconds=second % quiet)
            player.beats(step, quiet_seconds=0.0)
        for _ in range(run.seconds(step)):
            player.beats(step - 1)
        player.logs(step, run.shape(rng, step))
    return sorted(player.raised.items())


class _Player:
    def __init__(self, spec: JobSpec) -> None:
        self.watched = watched(spec)
        self.raised: dict[str, int] = {}
        self._health, self._pace = Health(), Pace(0.0)
        self._rank, self._pod = Source(), Source()
        self._second, self._step = 0, 0
        self._waiting: list[tuple[int, Values]] = []

    def beats(self, step: int, is_named: bool = False, quiet_seconds: float = math.inf) -> None:
        self._second += 1
        beat = Heartbeat(self._second, "training", step, is_named, quiet_seconds)
        self._pace = advance(self._pace, beat)
        if self._pace.still_seconds and is_stalled(self._pace, self.watched.stalled_seconds):
            self._raise("stalled")
        self._pod = add_heartbeat(self._pod, self._second, step)
        if self._second % WINDOW_SECONDS == 0:
            self._close(self._second - WINDOW_SECONDS)

    def logs(self, step: int, values: Values) -> None:
        self._step = step
        self._waiting.append((step, values))
        if step % NUM_OF_BATCH:
            return
        steps = [one for one, _ in self._waiting]
        columns = {name: (steps, [each[name] for _, each in self._waiting]) for name in values}
        self._waiting.clear()
        self._rank = add_batch(self._rank, self._second, 0, "s", step, columns)
        for _, logged in columns.values():
            if summarize(steps, logged).first_not_finite_step is not None:
                self._raise("not_finite")
        for rule in self.watched.rules:
            if first_beyond(rule, *columns.get(rule.metric, ((), ()))) is not None:
                self._raise("rule")

    def _close(self, starts_at: int) -> None:
        sources = ((0, None, self._rank), (None, POD, self._pod))
        window = run_window(
            StoredWindow(1, rank, pod_id, one)
            for rank, pod_id, source in sources
            for one in source.windows
            if one.starts_at == starts_at
        )
        self._health, changes = judge(self._health, window.with_losses(self.watched.losses))
        for change in changes:
            if change.is_raised:
                self._raise(change.finding.alert)

    def _raise(self, alert: str) -> None:
        self.raised.setdefault(alert, self._step)


def falls(step: int, start: float = 2.5, floor: float = 0.4, pace: float = 400.0) -> float:
    return floor + (start - floor) * math.exp(-step / pace)


def of(shape: Callable[[random.Random, int], float]) -> Shape:
    return lambda rng, step: {"loss": shape(rng, step)}


def annealed_vae(rng: random.Random, step: int) -> Values:
    """The term is weighted more and more, then learned: it rises tenfold, the sum falls."""
    beta = min(1.0, step / 1500)
    kl = 0.5 + 8 * min(1.0, step / 800) + rng.gauss(0, 0.2)
    return {"loss": falls(step, 90, 50) + beta * kl, "kl_loss": kl, "recon_loss": falls(step, 90)}


def adversaries(rng: random.Random, step: int) -> Values:
    return {
        "g_loss": 0.7 + 4 * step / NUM_STEPS + abs(rng.gauss(0, 0.5)),
        "d_loss": 0.7 - 0.5 * step / NUM_STEPS + abs(rng.gauss(0, 0.1)),
    }


def reinforcement(rng: random.Random, step: int) -> Values:
    """Returns grow, and with them the loss of the value function; that of the policy is about 0."""
    returns = 200 * step / NUM_STEPS
    return {
        "loss": rng.gauss(0, 0.05),
        "value_loss": 1 + (returns / 10) ** 2 * abs(rng.gauss(1, 0.3)),
        "episode_return": returns + rng.gauss(0, 20),
    }


def overfits(rng: random.Random, step: int) -> Values:
    """The job is judged by its accuracy, so that only the training's loss is watched."""
    return {
        "loss": falls(step) + rng.gauss(0, 0.02),
        "validation_loss": 0.5 + step / 1200,
        "accuracy": 0.9,
    }


HEALTHY: dict[str, Run] = {
    "an annealed VAE": Run(annealed_vae),
    "adversaries": Run(adversaries),
    "reinforcement learning": Run(reinforcement),
    "an overfitting judge of accuracy": Run(
        overfits, {"metric": {"name": "accuracy", "goal": "maximize"}}
    ),
    "a curriculum, each part harder at first": Run(
        of(lambda rng, step: 0.3 + falls(step, 1.7, 0.0) + 0.4 * math.exp(-(step % 600) / 100))
    ),
    # What begins anew looks like a loss that is lost: the job says that nobody watches it.
    "a curriculum that begins anew": Run(
        of(lambda rng, step: falls(step % 600, 1.0 + 0.15 * (step // 600), 0.3, 200.0)),
        {"alerts": {"diverging": "off"}},
    ),
    "warm restarts": Run(
        of(lambda rng, step: falls(step) + 0.3 * (1 - step % 600 / 600) + rng.gauss(0, 0.03))
    ),
    "class imbalance": Run(
        of(lambda rng, step: falls(step, floor=0.05) + (8.0 if rng.random() < 0.01 else 0.0))
    ),
    "noise": Run(of(lambda rng, step: falls(step) * rng.lognormvariate(0, 0.6))),
    "a staircase": Run(of(lambda rng, step: 2.0 * 0.3 ** (step // 600) + abs(rng.gauss(0, 0.02)))),
    "a warm-up": Run(of(lambda rng, step: falls(max(0, step - 800)) + rng.gauss(0, 0.05))),
    "fine-tuning near zero": Run(of(lambda rng, step: abs(rng.gauss(0.01, 0.01)))),
    "a log-likelihood below zero": Run(
        of(lambda rng, step: falls(step, 2.0, -6.0) + rng.gauss(0, 0.2))
    ),
    "a loss that is smaller at each pass's begin": Run(
        of(lambda rng, step: falls(step) * (0.85 + 0.3 * (step % 300) / 300))
    ),
    "evaluations of 100 s with a line every 5 s": Run(
        of(lambda rng, step: falls(step)), evaluates=lambda step: 5 if step % 500 == 0 else None
    ),
    "a checkpoint of 50 s": Run(
        of(lambda rng, step: falls(step)), seconds=lambda step: 50 if step % 600 == 0 else 1
    ),
    "a rule that holds": Run(
        lambda rng, step: {"loss": falls(step), "accuracy": 1 - falls(step, 0.9, 0.1)},
        {"alerts": {"rules": [{"metric": "accuracy", "below": 0.5, "after_steps": 1000}]}},
    ),
}


def after(fault: Callable[[random.Random, int], float]) -> Shape:
    """Healthy until the fault; it counts steps since then."""
    return of(
        lambda rng, step: (
            falls(step) + rng.gauss(0, 0.02) + (fault(rng, step - FAULT) if step >= FAULT else 0.0)
        )
    )


def of_rule(rule: dict[str, Any], good: float, bad: float) -> Run:
    def shape(rng: random.Random, step: int) -> Values:
        return {"loss": falls(step), rule["metric"]: bad if step >= FAULT else good}

    return Run(shape, {"alerts": {"rules": [rule]}})


# The alert that is raised, and within how many steps of one second; windows are half a minute, and
# three bad ones in a row are a divergence.
FAULTS: dict[str, tuple[Run, str, int]] = {
    "a fast divergence": (Run(after(lambda rng, since: math.expm1(since / 10))), "diverging", 120),
    "a slow divergence": (Run(after(lambda rng, since: since / 150)), "diverging", 360),
    "a growing oscillation": (
        Run(after(lambda rng, since: abs(math.sin(since)) * since / 20)),
        "diverging",
        180,
    ),
    "a loss that jumps back to its beginning": (
        Run(after(lambda rng, since: 2.2)),
        "diverging",
        120,
    ),
    "a diverging metric of the job": (
        Run(
            lambda rng, step: {"loss": 0.1, "val_loss": falls(step) + max(0, step - FAULT) / 100},
            {"metric": {"name": "val_loss", "goal": "minimize"}},
        ),
        "diverging",
        300,
    ),
    "NaN": (Run(after(lambda rng, since: math.nan)), "not_finite", NUM_OF_BATCH),
    "an infinity": (Run(after(lambda rng, since: math.inf)), "not_finite", NUM_OF_BATCH),
    "a hang": (
        Run(of(lambda rng, step: 1.0), seconds=lambda step: 65 if step == FAULT else 1),
        "stalled",
        0,
    ),
    "an evaluation that hangs": (
        Run(
            of(lambda rng, step: 1.0),
            {"alerts": {"stalled_minutes": 1.5}},
            evaluates=lambda step: 1000 if step == FAULT else None,
        ),
        "stalled",
        0,
    ),
    "a pace that halves": (
        Run(of(lambda rng, step: 1.0), seconds=lambda step: 1 + (step >= FAULT)),
        "slower",
        300,
    ),
    "an accuracy that collapses": (
        of_rule({"metric": "accuracy", "below": 0.5}, 0.9, 0.1),
        "rule",
        NUM_OF_BATCH,
    ),
    "a throughput that collapses": (
        of_rule({"metric": "tokens_per_second", "below": 900, "after_steps": 100}, 1200, 300),
        "rule",
        NUM_OF_BATCH,
    ),
    "memory that grows": (
        of_rule({"metric": "gpu_gib", "above": 70}, 40, 75),
        "rule",
        NUM_OF_BATCH,
    ),
}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_run_raises_no_alarm(name: str, seed: int) -> None:
    assert alarms(HEALTHY[name], seed) == []


@pytest.mark.parametrize("seed", range(1))
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_within_its_steps_and_nothing_before(name: str, seed: int) -> None:
    run, alert, within = FAULTS[name]
    raised = dict(alarms(run, seed))
    assert min(raised.values()) >= FAULT - 1
    assert raised[alert] - FAULT <= within


def test_a_loss_that_explodes_after_a_restart_is_found_by_the_new_run_alone() -> None:
    """Health begins anew with each attempt: its first windows are what it resumed from."""
    run = Run(of(lambda rng, step: 0.5 if step < 60 else 0.5 * 1.05 ** (step - 60)))
    ((alert, step),) = alarms(run, 0)[:1]
    assert alert == "diverging"
    assert step <= 60 + 120
