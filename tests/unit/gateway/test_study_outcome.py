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
