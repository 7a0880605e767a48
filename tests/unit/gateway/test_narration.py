import json
from pathlib import Path

import pytest

from drivetrain_schemas.registry import all_kinds
from services.gateway.core.narration import Tone, narrate
from tests.handlers.gateway.story import day

GOLDEN = Path(__file__).parents[2] / "golden"
TOLD = sorted(
    type_ for (type_, _), kind in all_kinds().items() if kind.kind.topic.name.startswith("events.")
)


@pytest.mark.parametrize("type_name", TOLD)
def test_every_event_of_the_timeline_has_a_sentence(type_name: str) -> None:
    record = json.loads((GOLDEN / f"{type_name}.v1.json").read_text())
    payload = record.get("data", record.get("value", record.get("payload", record)))
    sentence = narrate(type_name, payload)
    assert sentence.text != narrate("unknown.type", {}).text
    assert sentence.text != type_name.replace(".", " ").replace("_", " ").capitalize()
    assert "None" not in sentence.text
    assert "{" not in sentence.text


def test_an_event_of_a_newer_version_is_shown_by_its_name() -> None:
    assert narrate("run.moved_house", {"anything": 1}).text == "Run moved house"


def test_a_day_of_events_as_sentences() -> None:
    sentences = {}
    for event in day():
        if event.type in TOLD:
            sentences.setdefault(
                event.type, narrate(event.type, event.payload.model_dump(mode="json"))
            )
    assert sentences["run.failed"].text == "Attempt 1 failed: rank 1 was killed by SIGKILL"
    assert sentences["run.failed"].detail.startswith("step 163")
    assert sentences["run.failed"].tone is Tone.BAD
    assert (
        sentences["checkpoint.restored"].text == "Attempt 2 resumed at step 100 (loaded in 0.1 s)"
    )
    assert sentences["allocation.granted"].text == "Holds 1 slot: node-1 slot 0"
    assert sentences["job.succeeded"].tone is Tone.GOOD


def test_a_failure_is_told_by_its_cause() -> None:
    record = json.loads((GOLDEN / "run.failed.v1.json").read_text())
    assert narrate("run.failed", record["value"]).text == (
        "Attempt 2 failed: RuntimeError: out of memory"
    )
