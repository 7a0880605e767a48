"""What is said of a study, and in which colour."""

from dataclasses import dataclass

import pytest

from services.gateway.core.study_outcome import num_ended, outcome


@dataclass(frozen=True)
class Told:
    state: str
    num_completed: int = 0
    num_failed: int = 0
    is_cancelling: bool = False
    failure: str | None = None
    goal: str | None = "maximize"
    metric: str | None = "mAP@0.5"
    sampler: str | None = "random"
    num_stopped: int = 0
    ended_by: str | None = None
    state_reason: str | None = None


@pytest.mark.parametrize(
    ("study", "word", "colour"),
    [
        (Told("running", 3), "running", "running"),
        (Told("running", 3, is_cancelling=True), "cancelling", "cancelling"),
        (Told("completed", 11, 1), "completed", "succeeded"),
        (Told("completed", 0, 12), "no result", "failed"),
        (Told("completed"), "no result", "failed"),
        (Told("failed", 2, 1, failure="no point is left"), "failed", "failed"),
        (Told("cancelled", 2), "cancelled", "cancelled"),
        (Told("rejected"), "rejected", "rejected"),
        (Told("paused", 3), "paused", "paused"),
        (Told("stopping", 3), "stopping", "cancelling"),
    ],
)
def test_only_a_study_with_a_value_succeeded(study: Told, word: str, colour: str) -> None:
    told = outcome(study)
    assert (told.word, told.colour) == (word, colour)
    assert ("Running" in told.sentence) == (word == "running")


def test_the_sentence_of_a_finished_study_counts_its_trials() -> None:
    assert outcome(Told("completed", 11, 1)).sentence == (
        "Finished: 12 trials by random search to maximize mAP@0.5, 1 of them without a value"
    )
    assert "all 12 ended without one" in outcome(Told("completed", 0, 12)).sentence


def test_the_sentence_says_what_ended_the_study_early() -> None:
    told = outcome(Told("completed", 4, 1, num_stopped=7, ended_by="cost"))
    assert told.sentence == (
        "Finished: 12 trials by random search to maximize mAP@0.5, 7 of them stopped early and "
        "1 of them without a value; the limit of its cost was reached"
    )
    assert outcome(Told("paused", 3, state_reason="the night")).sentence.endswith(": the night")


@pytest.mark.parametrize(
    ("study", "sentence"),
    [
        (Told("completed", 1), "Finished: 1 trial by random search to maximize mAP@0.5"),
        (Told("completed", 1, metric=None), "Finished: 1 trial by search"),
        (Told("completed", ended_by="hours"), "No trial has a value: none ran; the limit of its"),
        (Told("completed", 0, 2, num_stopped=1), "No trial has a value: all 3 ended without one"),
        (Told("completed", 1, ended_by="trials"), "Finished: 1 trial by random search to maxi"),
        (Told("failed", failure="no point is left"), "The study failed: no point is left"),
        (Told("cancelled", 2, num_stopped=1), "Cancelled after 3 trials by random search to"),
        (Told("running", metric=None), "Running: search"),
        (Told("paused"), "Paused, no trial is started"),
        (
            Told("stopping", ended_by="cost", state_reason="x"),
            "Ending early; the limit of its cost",
        ),
        (Told("stopping", state_reason="enough"), "Ending early: enough"),
        (Told("stopping"), "Ending early"),
        (Told("submitted"), "The request was sent"),
        (Told("rejected"), "The request was rejected"),
    ],
)
def test_each_state_has_its_sentence(study: Told, sentence: str) -> None:
    assert outcome(study).sentence.startswith(sentence)


def test_trials_end_in_three_ways() -> None:
    assert num_ended(Told("running", 1, 2, num_stopped=4)) == 7
