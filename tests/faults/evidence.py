"""The checks after every failure, from the raw bytes on the topics and in the store.

Independent on purpose: nothing here imports the platform's own decoding, pricing or restoring.
"""

import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import ROUND_HALF_EVEN, Decimal, localcontext
from pathlib import Path
from typing import Any

import yaml
from aiokafka import AIOKafkaConsumer, TopicPartition
from safetensors.numpy import load_file

from tests.standalone_platform import StandalonePlatform, processes_with_marker
from tests.training_job import MAX_STEPS, TrainingJob
from tests.waiting import wait_until

PRICES = Path(__file__).parents[2] / "services/cost/prices.yaml"
TOPICS = ("events.jobs", "events.charges", "events.checkpoints", "events.nodes")


class RawEvent:
    """One record, by its bytes."""

    def __init__(self, record: Any) -> None:
        headers = {name: value.decode() for name, value in record.headers}
        self.topic = record.topic
        self.key = record.key.decode()
        self.id = (headers["ce_source"], headers["ce_id"])
        self.type = headers["ce_type"]
        self.seq = int(headers.get("ce_sequence", 0))
        self.data: dict[str, Any] = json.loads(record.value)


async def read_raw(platform: StandalonePlatform, topics: Iterable[str] = TOPICS) -> list[RawEvent]:
    """Everything on the topics, each event once (its first occurrence)."""
    kafka = platform.admin["kafka"]
    consumer = AIOKafkaConsumer(
        bootstrap_servers=kafka["bootstrap_servers"],
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username=kafka["username"],
        sasl_plain_password=kafka["password"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        names = [f"drivetrain.{topic}" for topic in topics]
        partitions = [TopicPartition(name, number) for name in names for number in range(4)]
        consumer.assign(partitions)
        ends = await consumer.end_offsets(partitions)
        await consumer.seek_to_beginning(*partitions)
        events: dict[tuple[str, str], RawEvent] = {}
        while any([await consumer.position(item) < ends[item] for item in partitions]):
            for batch in (await consumer.getmany(timeout_ms=500)).values():
                for record in batch:
                    event = RawEvent(record)
                    events.setdefault(event.id, event)
        return list(events.values())
    finally:
        await consumer.stop()


def check_sequences(events: list[RawEvent]) -> None:
    """Events of one (topic, key) are numbered 1, 2, 3 ... without a gap."""
    numbers = defaultdict(list)
    for event in events:
        numbers[(event.topic, event.key)].append(event.seq)
    for place, found in numbers.items():
        assert sorted(found) == list(range(1, len(found) + 1)), place


def check_succeeded_once(events: list[RawEvent], job_id: str) -> None:
    mine = Counter(event.type for event in events if event.key == job_id)
    assert mine["job.queued"] == 1
    assert mine["job.succeeded"] == 1
    assert mine["run.succeeded"] == 1
    assert mine["job.failed"] == mine["job.cancelled"] == 0


def check_slots(events: list[RawEvent], job_id: str) -> None:
    """No slot is held twice at a time, and everything that this job was granted is released."""
    released = [event.data for event in events if event.type == "allocation.released"]
    granted = [event.data for event in events if event.type == "allocation.granted"]
    of_job = {item["allocation_id"] for item in granted if item["job_id"] == job_id}
    assert of_job
    assert of_job == {item["allocation_id"] for item in released if item["job_id"] == job_id}
    intervals = defaultdict(list)
    for item in released:
        for slot in item["slots"]:
            interval = (_time(item["granted_at"]), _time(item["released_at"]))
            intervals[(slot["node_id"], slot["slot"])].append(interval)
    for held in intervals.values():
        held.sort()
        for (_, end), (begin, _) in itertools.pairwise(held):
            assert end <= begin


def check_charges(events: list[RawEvent], job_id: str) -> int:
    """The charges of the job, recomputed by the rule in services/cost/README.md.

    The owner pays from the grant to `paid_ends_at`; the time until the release is the platform's.
    """
    want: dict[str, tuple[int, int]] = {}
    for event in events:
        if event.type == "allocation.released" and event.data["job_id"] == job_id:
            granted, paid, released = (
                _time(event.data[name]) for name in ("granted_at", "paid_ends_at", "released_at")
            )
            assert granted <= paid <= released
            want[event.data["allocation_id"]] = (
                _amount(event.data, paid - granted),
                _amount(event.data, released - paid),
            )
    got: dict[str, tuple[int, int]] = {}
    charge_ids = set()
    for event in events:
        if event.type == "charge.recorded" and event.data["job_id"] == job_id:
            charge = event.data
            assert charge["charge_id"] not in charge_ids
            charge_ids.add(charge["charge_id"])
            owner, platform = got.get(charge["allocation_id"], (0, 0))
            got[charge["allocation_id"]] = (
                owner + charge["amount_micro_usd"],
                platform + charge.get("platform_micro_usd", 0),
            )
    assert got == want
    return sum(owner for owner, _ in want.values())


def check_paid_ends(platform: StandalonePlatform, events: list[RawEvent], job_id: str) -> None:
    """No charge exceeds the time a pod ran by its `exit.json` (checked up to 1 s later)."""
    for event in events:
        if event.type != "allocation.released" or event.data["job_id"] != job_id:
            continue
        attempt = platform.home / "pods" / job_id / str(event.data["attempt"])
        exits = [json.loads(path.read_text()) for path in attempt.glob("*/exit.json")]
        if exits and len(exits) == len(list(attempt.glob("pod_*"))):
            ended = max(_time(item["ended_at"]) for item in exits)
            assert _time(event.data["paid_ends_at"]) - ended < timedelta(seconds=1)


def check_losses(job: TrainingJob, reference: dict[int, float] | None) -> dict[int, float]:
    """Every step's loss exists once (and equals that of the uninterrupted job).

    Samples may arrive after the job's end: a pod continues to send what Kafka had not accepted.
    """

    def complete() -> dict[str, list[Any]] | None:
        answer = job.platform.get(
            f"/v1/jobs/{job.job_id}/metrics", names="loss", max_points=10 * MAX_STEPS
        )
        series: dict[str, list[Any]] = answer["series"].get("loss", {"steps": []})
        return series if len(series["steps"]) >= MAX_STEPS else None

    series = wait_until(complete, "the loss of every step", seconds=60)
    assert series["steps"] == list(range(1, MAX_STEPS + 1))
    losses = dict(zip(series["steps"], series["values"], strict=True))
    assert reference is None or losses == reference
    return losses


def final_weights(job: TrainingJob, objects: Path | None = None) -> dict[str, bytes]:
    """The model's tensors in the checkpoint of the last step, as bytes.

    `objects`: the object store's directory, if it is not the platform's own.
    """
    store = objects or job.platform.home / "objects"
    manifests = (store / "checkpoints").rglob(f"{job.job_id}/*/manifest.json")
    final = [path for path in manifests if json.loads(path.read_text())["step"] == MAX_STEPS]
    assert final, "no checkpoint of the last step"
    tensors = load_file(final[-1].parent / "rank-0.safetensors")
    weights = {name: array.tobytes() for name, array in tensors.items() if "model" in name}
    assert weights
    return weights


def check_nothing_left(job: TrainingJob) -> None:
    wait_until(lambda: processes_with_marker(job.body) == [], "no process of a pod is left")


def _amount(released: dict[str, Any], held: timedelta) -> int:
    (price,) = [
        Decimal(entry["micro_usd_per_slot_hour"])
        for entry in yaml.safe_load(PRICES.read_text())["prices"]
        if entry["device_type"] == released["device_type"]
    ]
    microseconds = (held.days * 86_400 + held.seconds) * 1_000_000 + held.microseconds
    with localcontext(prec=60):
        exact = Decimal(len(released["slots"])) * microseconds * price / Decimal(3_600_000_000)
        return int(exact.quantize(Decimal(1), rounding=ROUND_HALF_EVEN))


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
