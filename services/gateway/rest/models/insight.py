"""What a search knows by now, and what it does next."""

from typing import Any

from pydantic import BaseModel


class RungSummary(BaseModel):
    """How many trials were judged at this step, and what was decided; `threshold` is the newest."""

    step: int
    num_judged: int
    num_continued: int
    num_stopped: int
    num_paused: int
    threshold: float | None


class ImportanceOf(BaseModel):
    """`share` of the variance of ranks that goes with this hyperparameter alone, 0 to 1."""

    name: str
    share: float
    num_trials: int


class NextOf(BaseModel):
    """One thing that the search would do."""

    kind: str
    number: int | None = None
    parent: int | None = None
    hyperparameters: dict[str, bool | int | float | str] | None = None
    why: str = ""


class NextStep(BaseModel):
    """What the search would do next and why, and what of its limits is used up."""

    sentence: str
    next: NextOf
    spent: dict[str, float] = {}
    limits: dict[str, Any] | None = None


class Insight(BaseModel):
    """Importance and the front are of the newest 1,000 trials, unless the study has ended.

    `next` is None where the search does not go on, or does not answer.
    """

    study_id: str
    rungs: list[RungSummary]
    importances: list[ImportanceOf]
    pareto: list[int]
    next: NextStep | None
