"""What a pod that trains leaves on the topics of a real Kafka."""

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from drivetrain_schemas.base import Payload
from drivetrain_schemas.checkpoints import (
    CheckpointWriteFailed,
    CheckpointWritten,
    RunResumed,
    SaveFailure,
)
from drivetrain_schemas.envelope import Event, parse
from drivetrain_schemas.ids import run_id_for
from drivetrain_schemas.metrics import LogsWritten, SamplesRecorded
from drivetrain_schemas.pods import KafkaAccess as PodKafkaAccess
from drivetrain_schemas.reports import PodHeartbeat
from drivetrain_schemas.topics import LOGS, METRICS, REPORTS, Topic
from services.runtime.kafka_access import KafkaAccess
from services.runtime.topics import create_topics
from tests.trainer.conftest import make_pod, pods_root, template, topics, warm_template
from tests.trainer.pods import NO_KAFKA, Pod, wait_for
from tests.trainer.ranks import SCRIPTS

__all__ = ["make_pod", "pods_root", "template", "topics", "warm_template"]

TRAIN = ["python", str(SCRIPTS / "by_steps.py")]


# Each makes a step, then evaluates until the file is there.
IN_PYTHON = """
import pathlib, sys, time
import drivetrain
with drivetrain.run(max_steps=2) as run:
    for step in run.steps():
        run.log(loss=1.0)
    with run.phase("evaluation"):
        while not pathlib.Path(sys.argv[1]).exists():
            print("evaluated", flush=True)
            time.sleep(0.1)
    print("done", flush=True)
"""
IN_SHELL = """
report="$1 -m drivetrain.cli report"
$report loss=1.0 --step 2
$report --phase evaluation
until [ -e "$0" ]; do echo evaluated; sleep 0.1; done
$report loss=0.9 --step 2
echo done
"""
RUN_TOKEN = "a" * 32


async def read_to_its_end(kafka: KafkaAccess, prefix: str, topic: Topic) -> list[Event[Payload]]:
    """Everything that is on the topic now, in the order of each key."""
    partitions = [TopicPartition(prefix + topic.name, n) for n in range(topic.partitions)]
    events: list[Event[Payload]] = []
    async with AIOKafkaConsumer(**kafka.options(), auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        for partition, end in ends.items():
            while await consumer.position(partition) < end:
                for records in (await consumer.getmany(timeout_ms=500)).values():
                    events += [parse(record.headers, record.value) for record in records]
    return events


def access_to(kafka: KafkaAccess, topic_prefix: str) -> PodKafkaAccess:
    return PodKafkaAccess(
        bootstrap_servers=kafka.bootstrap_servers,
        topic_prefix=topic_prefix,
        username=kafka.username,
        password=kafka.password,
    )


async def test_a_killed_and_resumed_job_has_every_sample_once(
    kafka: KafkaAccess,
    topic_prefix: str,
    template: Path,
    make_pod: Callable[..., Pod],
    tmp_path: Path,
) -> None:
    await create_topics(kafka, topic_prefix)
    access = access_to(kafka, topic_prefix)
    variables = {"WEIGHTS": tmp_path / "weights", "PAUSE": 0.05}
    options = {"command": TRAIN, "num_ranks": 2, "kafka": access, "run_token": RUN_TOKEN}
    struck = make_pod(environment=variables | {"KILL_AT": 37, "KILL_RANK": 1}, **options)
    struck.start_warm(template)
    end = await asyncio.to_thread(struck.wait_for_exit)
    assert end.outcome == "failed"
    again = make_pod(environment=variables, attempt=2, **options)
    again.start_warm(template)
    end = await asyncio.to_thread(again.wait_for_exit)
    assert end.outcome == "succeeded", again.log
    await asyncio.to_thread(wait_for, lambda: not again.processes(), "the last acknowledgement")
    assert "not all telemetry" not in again.launch_log

    best: dict[int, int] = {}  # step -> highest attempt
    batches: dict[tuple[str, str], list[int]] = {}
    for event in await read_to_its_end(kafka, topic_prefix, METRICS):
        batch = event.payload
        assert isinstance(batch, SamplesRecorded)
        batches.setdefault((batch.run_id, batch.session), []).append(batch.batch)
        if "loss" not in batch.columns:
            continue  # what the shim says of its pod
        for step in batch.columns["loss"].steps:
            best[step] = max(best.get(step, 0), batch.attempt)
    assert sorted(best) == list(range(1, 61))
    for numbers in batches.values():
        assert list(dict.fromkeys(numbers)) == list(range(len(set(numbers))))

    events = await read_to_its_end(kafka, topic_prefix, REPORTS)
    assert {event.run_token for event in events} == {RUN_TOKEN}
    reports = [event.payload for event in events]
    resumed = [report for report in reports if isinstance(report, RunResumed)]
    assert [report.attempt for report in resumed] == [2]
    assert resumed[0].step in (10, 20, 30)
    written = {report.manifest_key for report in reports if isinstance(report, CheckpointWritten)}
    assert resumed[0].manifest_key in written
    stored = (tmp_path / "objects").glob("checkpoints/**/manifest.json")
    assert written == {str(path.relative_to(tmp_path / "objects")) for path in stored}
    beats = [report for report in reports if isinstance(report, PodHeartbeat)]
    assert {beat.attempt for beat in beats} == {1, 2}
    beats = [beat for beat in beats if beat.attempt == 2]
    assert beats[-1].phase == "ending"
    assert beats[-1].step == 60

    lines = [
        line
        for event in await read_to_its_end(kafka, topic_prefix, LOGS)
        if isinstance(event.payload, LogsWritten)
        for line in event.payload.lines
    ]
    assert "rank 0 begins after step 0 (False)" in lines
    assert f"rank 1 begins after step {resumed[0].step} (True)" in lines


@pytest.mark.parametrize("language", ["python", "shell"])
async def test_heartbeats_say_what_a_program_does_between_steps_and_that_it_goes_on(
    kafka: KafkaAccess,
    topic_prefix: str,
    make_pod: Callable[..., Pod],
    tmp_path: Path,
    language: str,
) -> None:
    await create_topics(kafka, topic_prefix)
    go = tmp_path / "go"
    commands = {
        "python": ["python", "-c", IN_PYTHON, str(go)],
        "shell": ["sh", "-c", IN_SHELL, str(go), sys.executable],
    }
    pod = make_pod(command=commands[language], kafka=access_to(kafka, topic_prefix))
    pod.start_cold()

    async def beats() -> list[PodHeartbeat]:
        events = await read_to_its_end(kafka, topic_prefix, REPORTS)
        return [one.payload for one in events if isinstance(one.payload, PodHeartbeat)]

    async with asyncio.timeout(60):
        while not any(beat.doing == "evaluation" for beat in await beats()):
            await asyncio.sleep(0.1)
    go.touch()
    end = await asyncio.to_thread(pod.wait_for_exit)
    assert end.outcome == "succeeded", pod.log
    await asyncio.to_thread(wait_for, lambda: not pod.processes(), "the last acknowledgement")
    found = await beats()
    assert {beat.quiet_seconds for beat in found if beat.step is None} <= {None}
    assert all(beat.quiet_seconds is not None for beat in found if beat.doing)
    assert (found[-1].doing, found[-1].step) == (None, 2)


@pytest.mark.heavy
async def test_samples_of_a_checkpoint_are_sent_again_as_those_of_the_earlier_run(
    kafka: KafkaAccess, topic_prefix: str, make_pod: Callable[..., Pod], tmp_path: Path
) -> None:
    """The first pod reaches no Kafka. The second one has only the token of its own run."""
    await create_topics(kafka, topic_prefix)
    variables = {"WEIGHTS": tmp_path / "weights"}
    kills = variables | {"KILL_AT": 37, "KILL_RANK": 0}
    struck = make_pod(command=TRAIN, environment=kills, kafka=NO_KAFKA)
    struck.start_cold()
    assert (await asyncio.to_thread(struck.wait_for_exit)).outcome == "failed"
    struck.end_shim()
    options = {"command": TRAIN, "kafka": access_to(kafka, topic_prefix), "run_token": RUN_TOKEN}
    again = make_pod(environment=variables, attempt=2, **options)
    again.start_cold()
    end = await asyncio.to_thread(again.wait_for_exit)
    assert end.outcome == "succeeded", again.log
    await asyncio.to_thread(wait_for, lambda: not again.processes(), "the last acknowledgement")

    steps: dict[int, set[int]] = {1: set(), 2: set()}
    for event in await read_to_its_end(kafka, topic_prefix, METRICS):
        batch = event.payload
        assert isinstance(batch, SamplesRecorded)
        assert event.run_token == RUN_TOKEN
        assert batch.run_id == run_id_for(batch.job_id, batch.attempt)
        by = batch.resent_by
        own = (again.spec.attempt, again.spec.fence)
        assert (by and (by.attempt, by.fence)) == (own if batch.attempt == 1 else None)
        if "loss" in batch.columns:
            steps[batch.attempt] |= set(batch.columns["loss"].steps)
    assert len(steps[1]) in (10, 20, 30)
    assert sorted(steps[1] | steps[2]) == list(range(1, 61))
    assert not steps[1] & steps[2]


@pytest.mark.heavy
async def test_a_store_that_is_moved_during_a_run_is_reported_and_not_created_again(
    kafka: KafkaAccess,
    topic_prefix: str,
    template: Path,
    make_pod: Callable[..., Pod],
    tmp_path: Path,
) -> None:
    await create_topics(kafka, topic_prefix)
    access = access_to(kafka, topic_prefix)
    variables = {"WEIGHTS": tmp_path / "weights", "PAUSE": 0.1}
    pod = make_pod(environment=variables, command=TRAIN, num_ranks=2, kafka=access)
    objects, moved = tmp_path / "objects", tmp_path / "moved"
    pod.start_warm(template)

    def move_away_and_back() -> None:
        wait_for(lambda: list(objects.glob("checkpoints/**/manifest.json")), "a checkpoint")
        objects.rename(moved)
        wait_for(lambda: "unavailable" in pod.log, "a save that fails")
        assert not objects.exists()
        moved.rename(objects)

    await asyncio.to_thread(move_away_and_back)
    end = await asyncio.to_thread(pod.wait_for_exit)
    assert end.outcome == "succeeded", pod.log
    await asyncio.to_thread(wait_for, lambda: not pod.processes(), "the last acknowledgement")
    reports = [event.payload for event in await read_to_its_end(kafka, topic_prefix, REPORTS)]
    failed = [report for report in reports if isinstance(report, CheckpointWriteFailed)]
    assert {one.reason for one in failed} - {SaveFailure.RANK_MISSING} == {
        SaveFailure.STORE_UNAVAILABLE
    }
    assert all(one.detail and one.step % 10 == 0 for one in failed)
    written = [report.step for report in reports if isinstance(report, CheckpointWritten)]
    assert written[0] < failed[0].step < written[-1] == 60


@pytest.mark.heavy
async def test_the_telemetry_of_pods_that_ended_without_kafka_is_sent_by_a_later_one(
    kafka: KafkaAccess, topic_prefix: str, make_pod: Callable[..., Pod]
) -> None:
    await create_topics(kafka, topic_prefix)
    access = access_to(kafka, topic_prefix)
    away = access.model_copy(update={"bootstrap_servers": "127.0.0.1:1"})
    for attempt, at_that_time in ((1, away), (2, away), (3, access)):
        command = ["sh", "-c", f"echo attempt {attempt}"]
        pod = make_pod(command=command, attempt=attempt, kafka=at_that_time)
        pod.start_cold()
        assert (await asyncio.to_thread(pod.wait_for_exit)).outcome == "succeeded"
        if at_that_time is away:
            await asyncio.to_thread(pod.end_shim)
        else:
            await asyncio.to_thread(pod.process.wait)
    assert not list((pod.directory.parents[2] / "unsent").glob("*-pod_*"))
    lines = {
        line
        for event in await read_to_its_end(kafka, topic_prefix, LOGS)
        for line in event.payload.lines
    }
    own = {line for line in lines if not line.startswith("drivetrain: ")}
    assert own == {"attempt 1", "attempt 2", "attempt 3"}
