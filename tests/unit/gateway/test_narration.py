import json
from pathlib import Path
from typing import Any

import pytest

from drivetrain_schemas.registry import all_kinds
from services.gateway.core.narration import narrate
from services.gateway.core.sentences import Fields, Tone
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


def event(type_name: str, **payload: Any) -> tuple[str, Fields]:
    return type_name, payload


TRIAL = {"number": 3, "reason": "poor", "detail": "no metric"}
FILES = {"num_files": 2, "size_bytes": 1500, "num_left_out": 1, "left_out": ["a.bin: too large"]}
SPENT = {
    "name": "team",
    "percent": 90,
    "spent_micro_usd": 9_000_000,
    "spec": {"limit_micro_usd": 10_000_000},
}
HELD = {"slots": [{"node_id": "n2", "slot": 0}, *({"node_id": "n1", "slot": n} for n in (1, 0))]}


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (
            event("job.queued", spec={"resources": {"devices": 1, "pool": "a"}}),
            "Accepted: needs 1 slot of pool a",
        ),
        (
            event("job.retrying", retries_left=1, backoff_seconds=30, next_attempt=2),
            "Attempt 2 follows after a pause of 30 s (1 more retry)",
        ),
        (
            event("job.retrying", retries_left=0, backoff_seconds=30, next_attempt=2),
            "Attempt 2 follows after a pause of 30 s (0 more retries)",
        ),
        (event("job.cancelled", reason=""), "Cancelled"),
        (event("job.cancelled", reason="enough"), "Cancelled: enough"),
        (event("job.succeeded", attempts=1), "Training is complete"),
        (event("job.succeeded", attempts=2), "Training is complete (2 attempts)"),
        (
            event(
                "job.succeeded",
                attempts=1,
                result={"best": {"name": "loss", "value": 0.25, "step": 1000}},
            ),
            "Training is complete: best loss 0.25 at step 1,000",
        ),
        (event("job.paused", reason="later"), "Paused, holds no slots: later"),
        (event("job.paused", reason="", step=0), "Paused at step 0, holds no slots"),
        (event("job.resumed", queued_at="2026-01-01"), "Resumed: waits for slots again"),
        (event("job.resumed", queued_at=None), "Pause withdrawn"),
        (event("job.annotated", tags=[], note=""), "Annotated: no tags"),
        (
            event("job.annotated", tags=["a", "b"], note="", project="p"),
            "Annotated: project p; tags a, b",
        ),
        (
            event("run.described", attempt=1, surroundings={"python": "3.11", "packages": None}),
            "Attempt 1 runs on Python 3.11 with 0 packages",
        ),
        (
            event("run.described", attempt=1, surroundings={"python": "3.11", "packages": [{}]}),
            "Attempt 1 runs on Python 3.11 with 1 package",
        ),
        (
            event("run.unreachable", attempt=1, node_ids=[], detail=""),
            "All nodes of attempt 1 answer",
        ),
        (
            event("run.unreachable", attempt=1, node_ids=["n"], detail="n is silent"),
            "Attempt 1 keeps its slots and waits: n is silent",
        ),
        (
            event("run.waiting", attempt=1, cause="refused", by="quota few", detail="refused: no"),
            "Attempt 1 waits: refused: no",
        ),
        (event("run.waiting", attempt=1), "Attempt 1 goes on: its pods are starting"),
        (
            event("run.failed", attempt=1, rank=0, signal=9),
            "Attempt 1 failed: rank 0 was killed by SIGKILL",
        ),
        (
            event("run.failed", attempt=1, signal=99),
            "Attempt 1 failed: a rank was killed by signal 99",
        ),
        (
            event("run.failed", attempt=1, exit_code=0),
            "Attempt 1 failed: a rank ended with exit code 0",
        ),
        (event("run.failed", attempt=1), "Attempt 1 failed: a rank ended without success"),
        (
            event("run.interrupted", attempt=1),
            "Attempt 1 stopped at a step boundary with a checkpoint, to be resumed",
        ),
        (
            event("run.interrupted", attempt=1, detail="drained"),
            "Attempt 1 was interrupted and is resumed: drained",
        ),
        (event("allocation.granted", **HELD), "Holds 3 slots: n1 slot 0-1; n2 slot 0"),
        (
            event(
                "allocation.released",
                **HELD,
                granted_at="2026-01-01T00:00:00Z",
                released_at="2026-01-01T00:01:03Z",
            ),
            "Released 3 slots after 1 min 3 s",
        ),
        (
            event(
                "charge.recorded",
                num_slots=1,
                amount_micro_usd=2_000_000,
                starts_at="2026-01-01T00:00:00Z",
                ends_at="2026-01-01T01:00:00Z",
            ),
            "Charged $2.00 for 1 slot over 1 h",
        ),
        (
            event(
                "charge.recorded",
                num_slots=1,
                amount_micro_usd=-2_000_000,
                reverses_charge_id="c",
                starts_at="2026-01-01T00:00:00Z",
                ends_at="2026-01-01T01:00:00Z",
            ),
            "A charge was reversed: -$2.00",
        ),
        (
            event("budget.changed", name="b", spec={"period": "total", "limit_micro_usd": 1}),
            "Budget b: $0.000001 in total",
        ),
        (
            event("budget.changed", name="b", spec={"period": "month", "limit_micro_usd": 1}),
            "Budget b: $0.000001 a month",
        ),
        (
            event("checkpoint.committed", step=1000, size_bytes=1500, is_best=True),
            "Checkpoint at step 1,000 is complete and verified (1.5 kB, the best so far)",
        ),
        (
            event("checkpoint.committed", step=1, size_bytes=1, files=FILES),
            "Checkpoint at step 1 is complete and verified (1 B); 1 file of the job not saved",
        ),
        (
            event("files.saved", files=FILES),
            "2 files saved (1.5 kB); 1 file of the job not saved",
        ),
        (
            event("files.saved", files={"num_files": 1, "size_bytes": 0}),
            "1 file saved (0 B)",
        ),
        (
            event("checkpoint.restored", resumed_by_attempt=2, step=9, load_seconds=0.1),
            "Attempt 2 resumed at step 9 (loaded in 0.1 s)",
        ),
        (
            event(
                "checkpoint.restored",
                resumed_by_attempt=2,
                step=9,
                load_seconds=0.1,
                rejected=["a", "b"],
            ),
            "Attempt 2 resumed at step 9 (loaded in 0.1 s); 2 newer checkpoints did not verify",
        ),
        (
            event("checkpointing.failed", attempt=1, last_step=0, detail="full"),
            "Attempt 1 has saved no checkpoint since step 0: full",
        ),
        (
            event("checkpointing.failed", attempt=1, last_step=None, detail="full"),
            "Attempt 1 has saved no checkpoint at all: full",
        ),
        (
            event("trial.measured", step=1000, value=None),
            "Reached step 1,000 of the search with no value",
        ),
        (
            event("trial.measured", step=10, value=0.5, value_step=10),
            "Reached step 10 of the search with 0.5",
        ),
        (
            event("trial.measured", step=10, value=0.0, value_step=9),
            "Reached step 10 of the search with 0 (of step 9)",
        ),
        (
            event("node.registered", node_id="n", pool="p", device_type="h200", num_slots=2),
            "Node n offers 2 h200 slots to pool p",
        ),
        (
            event(
                "node.registered",
                node_id="n",
                pool="p",
                device_type="h200",
                num_slots=2,
                unschedulable_reason="cordoned",
            ),
            "Node n of pool p accepts no new runs: cordoned",
        ),
        (event("parked.replayed", records=["a"]), "1 parked record replayed"),
        (event("parked.discarded", records=[1, 2], note="old"), "2 parked records discarded: old"),
        (event("study.started", num_trials=1), "Study accepted: up to 1 trial"),
        (event("study.paused", reason=""), "The study starts no further trials"),
        (
            event("study.paused", reason="night", trials="pause"),
            "The study starts no further trials and pauses its running ones: night",
        ),
        (
            event("study.changed", max_trials=8, max_parallel_trials=2, limits=None),
            "The study now has up to 8 trials, 2 at the same time",
        ),
        (
            event(
                "study.changed",
                max_trials=8,
                max_parallel_trials=2,
                is_revived=True,
                limits={"device_hours": 8, "hours": 0.5, "cost_usd": 1234},
            ),
            "The study now has up to 8 trials, 2 at the same time,"
            " at most 8 device-hours and 0.5 hours and $1,234, and runs again",
        ),
        (
            event("study.cancelled", num_completed=4, num_failed=2, num_stopped=1, reason=""),
            "Cancelled after 7 trials",
        ),
        (
            event("study.cancelled", num_completed=1, num_failed=0, reason="enough"),
            "Cancelled after 1 trial: enough",
        ),
        (event("study.completed", best_number=None), "Study complete: no trial has a value"),
        (
            event("study.completed", best_number=0, best_value=0.5, num_stopped=0),
            "Study complete: trial 0 is the best with 0.5",
        ),
        (
            event("study.completed", best_number=0, best_value=0.5, num_stopped=2),
            "Study complete: trial 0 is the best with 0.5; 2 were stopped early",
        ),
        (
            event("trial.proposed", number=1, hyperparameters={"b": 0.10, "a": "x"}, parent=0),
            "Trial 1 tries a = x, b = 0.1, from the checkpoint of trial 0",
        ),
        (
            event("trial.proposed", number=1, hyperparameters={"a": 1}, why="by chance"),
            "Trial 1 tries a = 1: by chance",
        ),
        (
            event("trial.judged", **TRIAL, step=1000, verdict="stop", value=0.0),
            "Trial 3 is to stop at step 1,000 with 0: poor",
        ),
        (
            event("trial.judged", **TRIAL, step=1, verdict="pause", value=None),
            "Trial 3 is to pause at step 1 with no value: poor",
        ),
        (event("trial.stopped", **TRIAL, step=0), "Trial 3 ended early at step 0: poor"),
        (event("trial.stopped", **TRIAL, step=None), "Trial 3 ended early: poor"),
        (
            event("trial.completed", number=3, value=0.5, is_best=True),
            "Trial 3 is the best so far: 0.5",
        ),
        (event("trial.completed", number=3, value=0.5), "Trial 3 ended with 0.5"),
        (
            event("trial.completed", number=3, value=0.5, is_best=True, is_safe=False),
            "Trial 3 ended with 0.5, and breaks the safety limit",
        ),
        (
            event("silence.changed", spec={"ends_at": "2026-01-01T12:30:00Z", "reason": "known"}),
            "Silenced until 2026-01-01 12:30 UTC: every alert of all jobs: known",
        ),
        (
            event("silence.ended", spec={"alert": "low_utilisation", "project": "p"}),
            "No longer silenced: low utilisation of project p",
        ),
        (
            event("silence.ended", spec={"job_id": "j", "project": "p"}),
            "No longer silenced: every alert of this job",
        ),
    ],
)
def test_an_event_is_told_with_what_it_says_and_without_what_it_lacks(
    event: tuple[str, Fields], text: str
) -> None:
    assert narrate(*event).text == text


@pytest.mark.parametrize(
    ("action", "ends", "tone"),
    [
        ("warn", "($9.00 of $10.00)", Tone.WARNING),
        ("hold", "; no more runs start", Tone.BAD),
        ("stop", "; its jobs are stopped", Tone.BAD),
    ],
)
def test_a_budget_that_only_warns_is_no_bad_news(action: str, ends: str, tone: Tone) -> None:
    sentence = narrate(*event("budget.reached", **SPENT, action=action))
    assert sentence.text.startswith("Budget team: 90 % are spent")
    assert (sentence.text.endswith(ends), sentence.tone) == (True, tone)


def test_what_was_left_out_is_a_warning_with_examples_to_unfold() -> None:
    restored = {"resumed_by_attempt": 2, "step": 9, "load_seconds": 0.1}
    committed = {"step": 1, "size_bytes": 1}
    whole = {"num_files": 1, "size_bytes": 0}
    for said, tone, detail in (
        (event("files.saved", files=FILES), Tone.WARNING, "a.bin: too large"),
        (event("files.saved", files=whole), Tone.PLAIN, ""),
        (event("checkpoint.committed", **committed, files=FILES), Tone.WARNING, "a.bin: too large"),
        (event("checkpoint.committed", **committed), Tone.GOOD, ""),
        (event("checkpoint.restored", **restored, rejected=["a", "b"]), Tone.WARNING, "a\nb"),
        (event("checkpoint.restored", **restored), Tone.GOOD, ""),
    ):
        sentence = narrate(*said)
        assert (sentence.tone, sentence.detail) == (tone, detail)


def test_a_refusal_lists_each_error_with_its_fix() -> None:
    errors = [{"field": "a", "message": "no"}, {"field": "b", "message": "no", "fix": "leave it"}]
    sentence = narrate(*event("job_request.rejected", detail="invalid", errors=errors))
    assert sentence.text == "A request was refused: invalid"
    assert sentence.detail == "a: no\nb: no (fix: leave it)"
