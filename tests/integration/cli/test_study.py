"""A study through the real command line, gateway, Kafka, Postgres and search service.

The test plays the scheduler: it answers every job that is asked for with a result. Meanwhile the
search service is killed with SIGKILL again and again.
"""

import asyncio
import json
import os
import secrets
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event, parse
from drivetrain_schemas.jobs import (
    BestValue,
    Goal,
    JobCancel,
    JobCancelled,
    JobQueued,
    JobSubmit,
    JobSucceeded,
    Result,
)
from drivetrain_schemas.studies import StudyCompleted, TrialCompleted, TrialProposed
from services.gateway.settings import GatewaySettings
from services.gateway.wiring import build
from services.runtime.kafka_access import KafkaAccess
from services.runtime.kafka_publisher import KafkaPublisher
from services.runtime.kafka_source import KafkaSource
from services.runtime.stores import initialise
from services.runtime.topics import create_topics
from tests.events import make_event
from tests.platform_service import out_record, read_events, running, service_environment

TOKEN = "token-of-the-integration-test"
NUM_TRIALS = 12
STUDY = """\
name: search
job:
  name: train
  command: python -m train
  metric: {name: loss, goal: minimize}
space:
  learning_rate: {type: uniform, low: 1e-4, high: 1e-1, log: true}
  width: {type: integer, low: 8, high: 64}
sampler: random
max_trials: 12
max_parallel_trials: 3
seed: 7
"""


@dataclass
class Places:
    """Where everything is, for processes."""

    kafka: KafkaAccess
    dsn: str
    prefix: str
    port: int

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: text for name, text in os.environ.items() if not name.startswith("DRIVETRAIN")
        }
        values = service_environment(self.kafka, self.dsn, self.prefix)
        return kept | {f"DRIVETRAIN_{name.upper()}": text for name, text in values.items() if text}

    async def cli(self, *arguments: str) -> tuple[int, str, str]:
        variables = {"DRIVETRAIN_URL": f"http://127.0.0.1:{self.port}", "DRIVETRAIN_TOKEN": TOKEN}
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "drivetrain.cli",
            *arguments,
            env=os.environ | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        out, err = await process.communicate()
        assert process.returncode is not None
        return process.returncode, out.decode(), err.decode()


@dataclass
class PlayedScheduler:
    """Answers each job once, with a loss that follows from its hyperparameters."""

    places: Places
    hpo: "KilledService"
    losses: dict[str, float] = field(default_factory=dict)
    # Jobs that run until they are cancelled, where the scheduler is told to leave them running.
    running: dict[str, JobSubmit] = field(default_factory=dict)
    leaves_running: bool = False

    async def play(self) -> None:
        group = f"scheduler-{secrets.token_hex(4)}"
        topic = f"{self.places.prefix}commands.jobs"
        source = KafkaSource(self.places.kafka, group, [topic], member=f"{group}.0", max_records=9)
        publisher = KafkaPublisher(self.places.kafka, group)
        await source.start()
        try:
            while True:
                for records in (await source.poll(0.2)).values():
                    for record in records:
                        await self._answer(parse(record.headers, record.value), publisher)
        finally:
            await source.stop()
            await publisher.close()

    async def _answer(self, event: Event[Payload], publisher: KafkaPublisher) -> None:
        command = event.payload
        if isinstance(command, JobCancel):
            told = make_event(_cancelled(self.running.pop(command.job_id), command.reason))
            await publisher.publish([out_record(replace(told, seq=2), self.places.prefix)])
            return
        assert isinstance(command, JobSubmit)
        assert command.job_id is not None
        if command.job_id in self.losses or command.job_id in self.running:
            return
        if self.leaves_running:
            self.running[command.job_id] = command
            told = make_event(_life(command, 0.0)[0])
            await publisher.publish([out_record(replace(told, seq=1), self.places.prefix)])
            return
        rate = command.spec.hyperparameters["learning_rate"]
        loss = abs(float(rate) - 0.01)
        self.losses[command.job_id] = loss
        for seq, payload in enumerate(_life(command, loss), start=1):
            told = replace(make_event(payload), seq=seq)
            await publisher.publish([out_record(told, self.places.prefix)])
        if len(self.losses) % 4 == 1:
            await self.hpo.kill()


def _life(command: JobSubmit, loss: float) -> list[Payload]:
    assert command.job_id is not None
    best = BestValue(name="loss", goal=Goal.MINIMIZE, value=loss, step=5)
    now = datetime.now(UTC)
    return [
        JobQueued(
            job_id=command.job_id,
            request_id=command.request_id,
            spec=command.spec,
            trial=command.trial,
            queued_at=now,
        ),
        JobSucceeded(
            job_id=command.job_id,
            attempts=1,
            result=Result(step=10, metrics={"loss": loss + 1}, best=best),
            finished_at=now,
            trial=command.trial,
        ),
    ]


def _cancelled(command: JobSubmit, reason: str) -> Payload:
    assert command.job_id is not None
    return JobCancelled(
        job_id=command.job_id, reason=reason, finished_at=datetime.now(UTC), trial=command.trial
    )


class KilledService:
    """`python -m services.hpo`, started again whenever it has been killed."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._environment = environment
        self._process: asyncio.subprocess.Process | None = None
        self.num_kills = 0

    async def start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.hpo", env=self._environment
        )

    async def kill(self) -> None:
        await self.end()
        self.num_kills += 1
        await self.start()

    async def end(self) -> None:
        assert self._process is not None
        assert self._process.returncode is None, "the search service ended by itself"
        self._process.kill()
        await self._process.wait()


@asynccontextmanager
async def platform(
    kafka: KafkaAccess, dsn: str, prefix: str, directory: Path
) -> AsyncIterator[tuple[Places, PlayedScheduler]]:
    await create_topics(kafka, prefix)
    connection = await asyncpg.connect(dsn)
    await connection.execute("drop schema if exists hpo cascade")
    await connection.execute("drop schema if exists gateway cascade")
    await connection.close()
    await initialise(f"file://{directory}")
    places = Places(kafka, dsn, prefix, _free_port())
    values: dict[str, Any] = {
        **service_environment(kafka, dsn, prefix),
        "object_store_url": f"file://{directory}",
        "api_token": TOKEN,
        "cookie_secret": "cookie-secret-of-the-integration-test",
        "http_port": places.port,
    }
    hpo = KilledService(places.environment)
    scheduler = PlayedScheduler(places, hpo)
    async with running(build(GatewaySettings(**values))):
        await hpo.start()
        playing = asyncio.create_task(scheduler.play())
        try:
            yield places, scheduler
        finally:
            playing.cancel()
            await asyncio.gather(playing, return_exceptions=True)
            await hpo.end()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@pytest.mark.heavy
async def test_a_study_ends_once_with_its_best_trial_though_its_service_is_killed(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str, tmp_path: Path
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    async with platform(kafka, postgres_dsn, topic_prefix, tmp_path) as (places, scheduler):
        submit = ["study", "submit", str(file), "--request-id", "mine", "--output", "json"]
        code, out, err = await places.cli(*submit, "--wait")
        assert code == 0, err
        study = json.loads(out)
        best_job, best_loss = min(scheduler.losses.items(), key=lambda item: item[1])
        assert (study["state"], study["num_completed"]) == ("completed", NUM_TRIALS)
        assert study["best_value"] == best_loss
        assert scheduler.hpo.num_kills >= 2

        again = await places.cli(*submit)
        assert (again[0], json.loads(again[1])["study_id"]) == (0, study["study_id"])
        refused = await places.cli(*submit, "--set", "seed=8")
        assert refused[0] == 5
        assert "request id" in refused[2]

        code, out, _ = await places.cli("study", "show", study["study_id"])
        assert code == 0
        first_row = out.partition("RANK")[2].splitlines()[1].split()
        assert (first_row[0], first_row[-1]) == ("1", best_job)
        code, out, _ = await places.cli("job", "list", "--state", "succeeded", "-o", "json")
        assert {job["job_id"] for job in json.loads(out)} == set(scheduler.losses)

        events = await read_events(kafka, f"{topic_prefix}events.studies", at_least=2)
    payloads = [event.payload for event in {event.event_id: event for event in events}.values()]
    proposed = [one.number for one in payloads if isinstance(one, TrialProposed)]
    completed = [one.number for one in payloads if isinstance(one, TrialCompleted)]
    assert sorted(proposed) == sorted(completed) == list(range(NUM_TRIALS))
    assert [one.best_job_id for one in payloads if isinstance(one, StudyCompleted)] == [best_job]
    assert len(scheduler.losses) == NUM_TRIALS


@pytest.mark.heavy
async def test_a_cancelled_study_ends_with_its_running_trials(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str, tmp_path: Path
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(STUDY)
    async with platform(kafka, postgres_dsn, topic_prefix, tmp_path) as (places, scheduler):
        scheduler.leaves_running = True
        waiting = asyncio.create_task(places.cli("study", "submit", str(file), "--wait"))
        async with asyncio.timeout(120):
            while len(scheduler.running) < 3:
                await asyncio.sleep(0.1)
        await scheduler.hpo.kill()
        code, _, err = await places.cli("study", "cancel", "search", "--reason", "enough")
        assert code == 0, err
        code, _, err = await waiting
        assert (code, "the study was cancelled" in err) == (1, True), err
        code, out, _ = await places.cli("study", "show", "latest", "--output", "json")
        study = json.loads(out)
        assert (study["state"], study["num_proposed"], study["num_failed"]) == ("cancelled", 3, 3)
        assert scheduler.running == {}
        code, _, err = await places.cli("study", "cancel", "latest")
        assert code == 0, "a cancelled study is cancelled"


@pytest.mark.heavy
async def test_what_the_command_line_sends_is_refused_with_the_same_messages(
    kafka: KafkaAccess, postgres_dsn: str, topic_prefix: str, tmp_path: Path
) -> None:
    async with platform(kafka, postgres_dsn, topic_prefix, tmp_path) as (places, _):
        unknown = "job_" + "a" * 26
        for verb in ("show", "logs", "metrics", "explain", "cancel"):
            code, _, err = await places.cli("job", verb, unknown)
            assert (code, "no such" in err or unknown in err) == (4, True), (verb, err)
        assert (await places.cli("job", "show", "../../nodes"))[0] in (4, 5)
        assert (await places.cli("job", "list", "--state", "flying"))[0] == 5
        assert (await places.cli("node", "list"))[1] == "no nodes\n"
        assert (await places.cli("parked", "list"))[1] == "no parked records\n"
        assert (await places.cli("cost", "show"))[0] == 0
        file = tmp_path / "job.yaml"
        file.write_text("name: x\ncommand: python train.py\ncode: .\n")
        code, out, err = await places.cli("job", "submit", str(file), "--request-id", "one")
        assert code == 0, err
        job_id, page = out.split()
        assert page == f"http://127.0.0.1:{places.port}/jobs/{job_id}"
        code, out, _ = await places.cli("job", "show", job_id, "--output", "json")
        spec = json.loads(out)["spec"]
        assert code == 0
        assert spec["code"]["uri"].startswith("store:code/default/")
