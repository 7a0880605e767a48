"""What is said of a study, and in which colour."""

from dataclasses import dataclass

import pytest

from services.gateway.core.study_outcome import outcome


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
