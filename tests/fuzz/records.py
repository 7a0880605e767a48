"""What a fuzz kind starts from: valid events of the topics that clients can write, as plain values.

The golden records give one valid event of every type; a kind then breaks exactly one thing.
"""

import json
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from drivetrain_schemas.registry import all_kinds

GOLDEN = Path(__file__).parents[1] / "golden"

# Topics that clients and pods can write, and the types that belong on each.
TYPES_OF_TOPIC: dict[str, list[str]] = {
    topic: sorted({type_name for (type_name, _), each in all_kinds().items()
                   if each.kind.topic.name == topic})
    for topic in ("commands.jobs", "commands.studies", "commands.budgets", "commands.silences",
                  "metrics", "logs", "reports")
}  # fmt: skip
POD_TOPICS = ("metrics", "logs", "reports")
# Clients send these through the gateway.
GATEWAY_TOPICS = ("commands.budgets", "commands.silences")


@dataclass
class FuzzRecord:
    """One record to be produced. `partition` None leaves the choice to the partitioner."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)
    timestamp_ms: int | None = None
    partition: int | None = None


@dataclass
class Draft:
    """A valid event, its payload still a Python value."""

    topic: str
    key: str
    headers: dict[str, str]
    payload: dict[str, Any]

    def record(self, value: bytes | None = None) -> FuzzRecord:
        content = json.dumps(self.payload).encode() if value is None else value
        headers: list[tuple[str, bytes | None]] = [
            (name, text.encode()) for name, text in self.headers.items()
        ]
        return FuzzRecord(self.topic, self.key.encode(), content, headers)


def draft(random: Random, topic: str, type_name: str | None = None) -> Draft:
    """A valid event of `topic` with an event id of its own."""
    golden = _golden(type_name or random.choice(TYPES_OF_TOPIC[topic]))
    headers = {**golden["headers"], "ce_id": f"fuzz-{random.getrandbits(96):024x}"}
    return Draft(topic, golden["key"], headers, golden["value"])


def type_of_another_topic(random: Random, topic: str) -> str:
    others = sorted({type_name for type_name, _ in all_kinds()} - set(TYPES_OF_TOPIC[topic]))
    return random.choice(others)


def _golden(type_name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((GOLDEN / f"{type_name}.v1.json").read_text())
    return content
