"""The events of a platform's day: jobs that succeed, fail, wait and are cancelled; a study; alerts.

A builder that numbers events as their producers do (gapless by topic and key) and stamps them from
a start on, so that two builds of the same story are the same events.
"""

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from drivetrain_schemas.allocations import AllocationGranted, AllocationReleased, SlotRef
from drivetrain_schemas.base import Payload
from drivetrain_schemas.charges import ChargeRecorded
from drivetrain_schemas.checkpoints import (
    CheckpointCommitted,
    CheckpointDeleted,
    CheckpointRestored,
)
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.ids import (
    allocation_id_for,
    charge_id_for,
    checkpoint_id_for,
    job_id_for,
    pod_id_for,
    run_id_for,
    study_id_for,
)
from drivetrain_schemas.jobs import (
    BestValue,
    Goal,
    JobQueued,
    JobRetrying,
    JobSpec,
    JobSucceeded,
    JobWaiting,
    Result,
    TrialOf,
    UsedSeed,
    WaitingReason,
)
from drivetrain_schemas.metrics import AlertRaised
from drivetrain_schemas.nodes import NodeRegistered
from drivetrain_schemas.reports import PodHeartbeat
from drivetrain_schemas.runs import RunFailed, RunStarted, RunStarting, RunSucceeded
from drivetrain_schemas.studies import (
    StudySpec,
    StudyStarted,
    TrialCompleted,
    TrialProposed,
)

START = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)
TENANT = "default"


def spec(name: str, **changes: Any) -> JobSpec:
    fields: dict[str, Any] = {
        "name": name,
        "command": ("python", "train.py"),
        "code": {"uri": "store:code/default/a.tar.gz", "sha256": "a" * 64},
        "max_steps": 400,
        "hyperparameters": {"learning_rate": 0.05},
        "metric": {"name": "validation_accuracy", "goal": "maximize"},
        "resources": {"devices": 2},
        "checkpoint": {"every_steps": 100},
    }
    return JobSpec.model_validate({**fields, **changes})


class Story:
    """Events in the order they are told. `at` moves the story's clock."""

    def __init__(
        self, start: datetime = START, tenant_id: str = TENANT, node_id: str = "node-1"
    ) -> None:
        self.now = start
        self.tenant_id = tenant_id
        self.node_id = node_id  # where its jobs run
        self.events: list[Event[Any]] = []
        self._seqs: dict[tuple[str, str], int] = {}

    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def tell(self, payload: Payload) -> Event[Any]:
        topic = payload.kind.topic.name
        place = (topic, payload.key)
        seq = self._seqs[place] = self._seqs.get(place, 0) + 1
        event = Event(
            event_id=f"{topic}-{payload.key}-{seq}",
            source=f"/drivetrain/{payload.kind.producer}",
            occurred_at=self.now,
            tenant_id=self.tenant_id,
            payload=payload,
            seq=seq if topic.startswith("events.") else None,
        )
        self.events.append(event)
        self.now += timedelta(milliseconds=40)
        return event

    def nodes(self, *names: str, slots: int = 2) -> None:
        for name in names:
            self.tell(
                NodeRegistered(node_id=name, pool="default", device_type="cpu", num_slots=slots)
            )

    def job(self, name: str, trial: TrialOf | None = None, **changes: Any) -> "JobStory":
        return JobStory(self, name, spec(name, **changes), trial)


class JobStory:
    """One job of a story."""

    def __init__(self, story: Story, name: str, job: JobSpec, trial: TrialOf | None) -> None:
        self.story = story
        self.spec = job
        self.trial = trial
        self.job_id = job_id_for(story.tenant_id, name)
        self.attempt = 0
        self._granted_at = story.now
        story.tell(
            JobQueued(
                job_id=self.job_id, request_id=name, spec=job, trial=trial, queued_at=story.now
            )
        )

    @property
    def run(self) -> dict[str, Any]:
        return self._run_of(self.attempt)

    def _run_of(self, attempt: int) -> dict[str, Any]:
        return {
            "job_id": self.job_id,
            "run_id": run_id_for(self.job_id, attempt),
            "attempt": attempt,
            "fence": 10 + attempt,
        }

    @property
    def allocation(self) -> dict[str, Any]:
        slots = tuple(
            SlotRef(node_id=self.story.node_id, slot=slot)
            for slot in range(self.spec.resources.devices)
        )
        return {
            **self.run,
            "allocation_id": allocation_id_for(self.job_id, self.attempt),
            "tenant_id": self.story.tenant_id,
            "pool": "default",
            "device_type": "cpu",
            "slots": slots,
            "granted_at": self._granted_at,
        }

    def waits(self, position: int = 1) -> None:
        self.story.tell(
            JobWaiting(
                job_id=self.job_id,
                reason=WaitingReason.NO_FREE_DEVICES,
                detail=f"needs {self.spec.resources.devices} slots of pool default; 2 are free",
                queue_position=position,
            )
        )

    def starts(self) -> None:
        self.attempt += 1
        self._granted_at = self.story.now
        self.story.tell(AllocationGranted(**self.allocation))
        self.story.tell(
            RunStarting(**self.run, allocation_id=self.allocation["allocation_id"], num_pods=1)
        )
        self.story.wait(0.6)
        self.story.tell(RunStarted(**self.run, started_at=self.story.now))

    def beats(self, *steps: int, seconds: float = 1.0, phase: str = "training") -> None:
        for step in steps:
            self.story.tell(self.beat(step, phase=phase))
            self.story.wait(seconds)

    def beat(self, step: int, phase: str = "training") -> PodHeartbeat:
        return PodHeartbeat(
            tenant_id=self.story.tenant_id,
            **self.run,
            pod_id=pod_id_for(self.job_id, self.attempt, 0),
            phase=phase,
            step=step,
            max_steps=self.spec.max_steps,
            sent_at=self.story.now,
        )

    def saves(
        self, step: int, value: float = 0.9, *, is_best: bool = True, num_others: int = 0
    ) -> str:
        directory = f"checkpoints/{self.story.tenant_id}/{self.job_id}"
        key = f"{directory}/f{10 + self.attempt:012d}-s{step:012d}-aaaaaaaa"
        checkpoint_id = checkpoint_id_for(f"{key}/manifest.json")
        self.story.tell(
            CheckpointCommitted(
                checkpoint_id=checkpoint_id,
                tenant_id=self.story.tenant_id,
                **self.run,
                step=step,
                manifest_key=f"{key}/manifest.json",
                size_bytes=1_234_567,
                num_shards=4,
                epoch=step // 90,
                metrics={f"layer_{n}/norm": 1.0 for n in range(num_others)}
                | {"validation_accuracy": value},
                is_latest=True,
                is_best=is_best,
            )
        )
        return checkpoint_id

    def loses(self, checkpoint_id: str, step: int) -> None:
        self.story.tell(
            CheckpointDeleted(
                checkpoint_id=checkpoint_id,
                tenant_id=self.story.tenant_id,
                **self.run,
                step=step,
                size_bytes=1_234_567,
                reason="older than the last 3",
            )
        )

    def fails(
        self,
        log: str = "ValueError: loss is not finite",
        signal: int | None = 9,
        detail: str | None = None,
    ) -> None:
        self.story.tell(
            RunFailed(
                **self.run,
                exit_code=None if signal else 1,
                signal=signal,
                rank=1,
                last_log=log,
                detail=detail,
                ended_at=self.story.now,
            )
        )
        self.releases()

    def retries(self) -> None:
        self.story.tell(
            JobRetrying(
                job_id=self.job_id,
                next_attempt=self.attempt + 1,
                backoff_seconds=1.0,
                not_before_at=self.story.now + timedelta(seconds=1),
                retries_left=4,
            )
        )
        self.story.wait(1)

    def resumes(self, checkpoint_id: str, step: int) -> None:
        before = self._run_of(self.attempt - 1)
        self.story.tell(
            CheckpointRestored(
                checkpoint_id=checkpoint_id,
                tenant_id=self.story.tenant_id,
                **before,
                step=step,
                resumed_by_run_id=run_id_for(self.job_id, self.attempt),
                resumed_by_attempt=self.attempt,
                load_seconds=0.08,
            )
        )

    def releases(self) -> None:
        released_at = self.story.now
        self.story.tell(
            AllocationReleased(**self.allocation, released_at=released_at, paid_ends_at=released_at)
        )
        seconds = (released_at - self._granted_at).total_seconds()
        allocation = self.allocation
        self.story.tell(
            ChargeRecorded(
                charge_id=charge_id_for(allocation["allocation_id"], "cpu-2026"),
                tenant_id=self.story.tenant_id,
                job_id=self.job_id,
                run_id=allocation["run_id"],
                attempt=self.attempt,
                allocation_id=allocation["allocation_id"],
                pool="default",
                device_type="cpu",
                num_slots=len(allocation["slots"]),
                starts_at=self._granted_at,
                ends_at=released_at,
                price_id="cpu-2026",
                price_micro_usd_per_slot_hour=40_000,
                amount_micro_usd=round(seconds * len(allocation["slots"]) * 40_000 / 3600),
            )
        )

    def succeeds(self, value: float = 0.981, step: int = 400, seed: UsedSeed | None = None) -> None:
        best = BestValue(name="validation_accuracy", goal=Goal.MAXIMIZE, value=value, step=step)
        metrics = {"validation_accuracy": value, "loss": 0.04}
        result = Result(step=step, metrics=metrics, best=best, seed=seed)
        self.story.tell(RunSucceeded(**self.run, result=result, ended_at=self.story.now))
        self.releases()
        self.story.tell(
            JobSucceeded(
                job_id=self.job_id,
                attempts=self.attempt,
                result=result,
                finished_at=self.story.now,
                trial=self.trial,
            )
        )


def recovery(story: Story) -> JobStory:
    """A job whose rank is killed after its first checkpoint, and that goes on from there."""
    job = story.job("digits")
    job.starts()
    job.beats(0, 40, 80, 120, 160)
    first = job.saves(100, 0.91)
    job.fails("step 163 loss 0.412\nterminated by signal 9")
    job.retries()
    job.starts()
    job.resumes(first, 100)
    job.beats(100, 150, 200, 250)
    job.saves(200, 0.955)
    return job


def search(story: Story, num_trials: int = 6, name: str = "search") -> str:
    """A study in the middle of its work."""
    study = StudySpec.model_validate(
        {
            "name": "digits-search",
            "job": spec("trial").model_dump(mode="json"),
            "space": {
                "learning_rate": {"type": "uniform", "low": 0.001, "high": 0.3, "log": True},
                "momentum": {"type": "choice", "values": [0.0, 0.9]},
            },
            "max_trials": 12,
            "max_parallel_trials": 2,
        }
    )
    study_id = study_id_for(TENANT, name)
    story.tell(
        StudyStarted(
            study_id=study_id, request_id=name, spec=study, num_trials=12, started_at=story.now
        )
    )
    best = -math.inf
    for number in range(num_trials):
        point = {"learning_rate": round(0.002 * 2**number, 5), "momentum": 0.9 * (number % 2)}
        trial = TrialOf(study_id=study_id, number=number)
        job = story.job(f"digits-{name}-{number}", trial, resources={"devices": 1})
        about = {
            "study_id": study_id, "number": number, "job_id": job.job_id, "hyperparameters": point
        }  # fmt: skip
        story.tell(TrialProposed(**about))
        if number < num_trials - 1:
            value = round(0.9 + 0.015 * number - 0.006 * (number - 3) ** 2, 4)
            job.starts()
            story.wait(20)
            job.succeeds(value)
            story.tell(TrialCompleted(**about, value=value, is_best=value > best))
            best = max(best, value)
    return study_id


def day(start: datetime = START) -> Iterator[Event[Any]]:
    """Everything above in one platform."""
    story = Story(start)
    story.nodes("node-1", "node-2", slots=4)
    search(story)
    done = story.job("mnist-baseline")
    done.waits()
    story.wait(12)
    done.starts()
    done.beats(0, 100, 200, 300, 390, seconds=8)
    for step in (100, 200, 300, 400):
        done.saves(step, 0.9 + step / 5000)
    done.succeeds()
    running = recovery(story)
    story.tell(
        AlertRaised(
            tenant_id=TENANT,
            job_id=running.job_id,
            run_id=running.run["run_id"],
            attempt=running.attempt,
            alert="not_finite",
            series="loss",
            step=212,
            detail="loss is nan at step 212",
        )
    )
    waiting = story.job("resnet-large", resources={"devices": 8})
    waiting.waits()
    yield from story.events
