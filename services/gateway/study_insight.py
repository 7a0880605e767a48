"""What a study has shown so far: for its page, and over REST.

In: a study's row of the read model. Out: importance, rungs, the front, and points to draw, all from
a bounded number of rows; and from the search itself what it does next.
"""

from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from drivetrain_schemas.redaction import redacted
from services.gateway import queries
from services.gateway.backends import PartRefused, PartUnavailable
from services.gateway.context import Gateway
from services.gateway.core.best_so_far import best_so_far
from services.gateway.core.fronts import pareto_front
from services.gateway.core.importance import importances
from services.gateway.rest import models

Row = dict[str, Any]

_GOES_ON = ("running", "paused", "stopping")
MAX_POINTS = 500


@dataclass(frozen=True, slots=True)
class Drawing:
    """What the page's script draws; plain JSON, of a bounded size."""

    insight: models.Insight
    data: dict[str, Any]


async def find_insight(gateway: Gateway, study: Row) -> Drawing:
    """The study's insight, and what its page draws of it."""
    study_id = study["study_id"]
    async with gateway.platform.database.connection() as connection:
        rungs = await queries.searches.rung_counts(connection, study_id)
        bests = await queries.searches.bests(connection, study_id)
        recent = await queries.searches.recent(connection, study_id)
        live = await queries.searches.live_rungs(connection, study_id) if rungs else []
        children = await queries.searches.children(connection, study_id)
    goals = goals_of(study)
    ranked = [row for row in recent if row["ranked_value"] is not None]
    is_maximized = study["goal"] == "maximize"
    found = importances(*_order(recent, is_maximized=is_maximized))
    valued = [(row["number"], row["value"]) for row in (*bests, *ranked)]
    front = _front(study, ranked, goals)
    insight = models.Insight(
        study_id=study_id,
        rungs=[
            models.RungSummary(**{name: row[name] for name in models.RungSummary.model_fields})
            for row in rungs
        ],
        importances=[
            models.ImportanceOf(name=one.name, share=round(one.share, 4), num_trials=one.num_trials)
            for one in found
        ],
        pareto=front,
        next=await _next(gateway, study),
    )
    data = {
        "goals": goals,
        "points": [_point(row) for row in ranked[-MAX_POINTS:]],
        "stopped": _stopped(recent)[-MAX_POINTS:],
        "bests": best_so_far(valued, is_maximized=is_maximized),
        "rungs": [[row["step"], row["threshold"]] for row in rungs],
        "live": [[row["number"], row["step"], row["value"]] for row in live],
        "lineage": _lineage(children, recent),
        "front": front,
    }
    return Drawing(insight, data)


def goals_of(study: Row) -> list[dict[str, str]]:
    """The objectives, first the one that ranks."""
    spec = study["spec"] or {}
    first = (spec.get("job") or {}).get("metric")
    return [first, *(spec.get("objectives") or ())] if first else []


def _order(recent: list[Row], *, is_maximized: bool) -> tuple[list[Any], list[float]]:
    """Points and their places, the best 0. A trial that was stopped is after those that went
    further: to leave it out would leave out what a pruner has found to be bad."""
    sign = -1 if is_maximized else 1
    keys = {}
    for row in recent:
        if row["ranked_value"] is not None:
            keys[row["number"]] = (0, 0, sign * row["ranked_value"])
        elif row["state"] == "stopped" and row["measured"] is not None:
            keys[row["number"]] = (1, -row["rung"], sign * row["measured"])
    place = {key: float(at) for at, key in enumerate(sorted(set(keys.values())))}
    points = [row["hyperparameters"] for row in recent if row["number"] in keys]
    return points, [place[keys[row["number"]]] for row in recent if row["number"] in keys]


def _point(row: Row) -> list[Any]:
    """[number, value, cost in dollars, further values]"""
    return [
        row["number"],
        row["value"],
        row["charged_micro_usd"] / 1e6,
        *(row["objectives"] or ())[1:],
    ]


def _stopped(recent: list[Row]) -> list[list[Any]]:
    """[number, value at its last rung, cost in dollars]"""
    return [
        [row["number"], row["measured"], row["charged_micro_usd"] / 1e6]
        for row in recent
        if row["state"] == "stopped" and row["measured"] is not None
    ]


def _front(study: Row, ranked: list[Row], goals: list[dict[str, str]]) -> list[int]:
    if study["pareto"]:
        return list(study["pareto"])
    if len(goals) < 2:
        return []
    values = {
        row["number"]: row["objectives"]
        for row in ranked
        if len(row["objectives"] or ()) == len(goals)
    }
    return pareto_front(values, [goal["goal"] for goal in goals])


def _lineage(children: list[Row], recent: list[Row]) -> list[list[Any]]:
    """[number, value, parent, the parent's value]; the parent's is None where it is older."""
    values = {
        row["number"]: row["measured"] if row["value"] is None else row["value"] for row in recent
    }
    return [
        [row["number"], row["value"], row["parent"], values.get(row["parent"])] for row in children
    ]


async def _next(gateway: Gateway, study: Row) -> models.NextStep | None:
    if study["state"] not in _GOES_ON:
        return None
    try:
        found = await gateway.backends.get("hpo", "/next", {"study_id": study["study_id"]})
        return models.NextStep.model_validate(redacted(found))
    except (PartUnavailable, PartRefused, ValidationError):
        return None
