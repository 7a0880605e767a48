"""What a study will use: played through with its own pruner, before it starts."""

import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import TypeAdapter

from drivetrain_schemas.pruners import Pruner
from drivetrain_schemas.study_specs import StudySpec
from services.hpo.core.preview import Asked, Known, Preview, Span, preview
from services.hpo.previews import preview_of

ASKED = Asked(27, 4, devices=2, max_steps=81)
KNOWN = Known(seconds_per_step=Span(1.0, 2.0, 4.0), usd_per_device_hour=3.0)


def pruner(**fields: Any) -> Any:
    return TypeAdapter(Pruner).validate_python(fields)


def trials_by_step(found: Preview) -> dict[int, Span]:
    return {rung.step: rung.num_trials for rung in found.rungs}


def exactly(value: float) -> Span:
    return Span(value, value, value)


def test_without_a_pruner_every_trial_is_whole() -> None:
    found = preview(ASKED, KNOWN)
    assert found.steps == exactly(27 * 81)
    assert found.steps_without_pruner == 27 * 81
    assert trials_by_step(found) == {81: exactly(27)}
    hours = 27 * 81 * 2 / 3600
    assert found.device_hours == Span(hours, 2 * hours, 4 * hours)
    assert found.cost_usd == Span(hours * 3, 2 * hours * 3, 4 * hours * 3)
    # Seven rounds of four trials.
    assert found.hours == Span(*(7 * 81 * seconds / 3600 for seconds in (1.0, 2.0, 4.0)))
    assert found.unknown == ()


def test_halving_has_the_same_rungs_whatever_the_trials_log() -> None:
    halving = pruner(type="halving", min_steps=1, reduction_factor=3)
    found = preview(replace(ASKED, pruner=halving), KNOWN)
    assert trials_by_step(found) == {
        step: exactly(num) for step, num in ((1, 27), (3, 9), (9, 3), (27, 1), (81, 1))
    }
    assert found.steps == exactly(27 + 9 * 2 + 3 * 6 + 18 + 54)


def test_asha_spends_between_a_whole_search_and_one_in_which_nothing_is_promoted() -> None:
    asha = pruner(type="asha", min_steps=1, reduction_factor=3, mode="stop")
    found = preview(replace(ASKED, pruner=asha), KNOWN)
    assert found.steps is not None
    assert found.steps_without_pruner is not None
    assert found.steps.high == found.steps_without_pruner
    assert found.steps.low < found.steps.likely < found.steps.high / 2
    by_step = trials_by_step(found)
    assert by_step[1] == exactly(27)
    assert by_step[3].likely <= 18


PRUNERS = [
    {"type": "median", "every_steps": 9},
    {"type": "percentile", "every_steps": 9, "percentile": 50.0},
    {"type": "patience", "every_steps": 9, "rungs": 2},
    {"type": "threshold", "every_steps": 9, "upper": 1.0},
    {"type": "threshold", "every_steps": 9, "lower": 1.0},
    {"type": "halving", "min_steps": 3},
    {"type": "hyperband", "min_steps": 3},
    {"type": "asha", "min_steps": 3, "mode": "stop"},
    {"type": "asha", "min_steps": 3, "mode": "pause"},
    {"type": "pasha", "min_steps": 3},
    {"type": "population", "every_steps": 9},
]


@pytest.mark.parametrize("fields", PRUNERS, ids=str)
@pytest.mark.parametrize("num_trials", [1, 27, 100_000])
def test_every_pruner_is_played_to_the_end_and_never_spends_more_than_whole_trials(
    fields: dict[str, Any], num_trials: int
) -> None:
    asked = replace(ASKED, pruner=pruner(**fields), num_trials=num_trials)
    found = preview(asked, KNOWN)
    assert found == preview(asked, KNOWN)
    assert found.steps is not None
    assert found.steps_without_pruner is not None
    assert 0 < found.steps.low <= found.steps.likely <= found.steps.high
    assert found.steps.high <= found.steps_without_pruner
    assert all(rung.num_trials.high <= num_trials for rung in found.rungs)
    if num_trials > 1:
        assert found.steps.low < found.steps_without_pruner


def test_limits_end_the_study() -> None:
    asked = replace(ASKED, max_cost_usd=8.0, max_hours=100.0)
    found = preview(asked, KNOWN)
    assert found.reached_limits == ("cost_usd",)
    assert found.cost_usd is not None
    assert found.cost_usd.high == 8.0
    assert found.cost_usd.low < 8.0


def test_what_is_not_known_is_named_and_not_guessed() -> None:
    found = preview(ASKED, Known())
    assert found.steps == exactly(27 * 81)
    assert (found.device_hours, found.cost_usd, found.hours) == (None, None, None)
    assert len(found.unknown) == 2
    endless = preview(replace(ASKED, max_steps=None), replace(KNOWN, seconds_per_step=None))
    assert (endless.steps, endless.rungs, endless.device_hours) == (None, (), None)
    by_trial = Known(seconds_per_trial=exactly(3600.0), usd_per_device_hour=3.0)
    whole = preview(replace(ASKED, max_steps=None), by_trial)
    assert whole.device_hours == exactly(54.0)
    assert whole.cost_usd == exactly(162.0)
    assert len(whole.unknown) == 1


def test_a_spec_is_previewed_with_the_points_that_its_grid_has() -> None:
    spec = StudySpec.model_validate(
        {
            "name": "search",
            "job": {
                "name": "j",
                "command": "true",
                "metric": {"name": "loss", "goal": "minimize"},
                "max_steps": 90,
                "resources": {"devices": 4},
            },
            "space": {"a": {"type": "choice", "values": [1, 2, 3]}},
            "constraints": ["a > 1"],
            "sampler": "grid",
            "max_trials": 50,
            "limits": {"device_hours": 0.1},
        }
    )
    found = preview_of(spec, Known(seconds_per_step=exactly(1.0)))
    assert found["num_trials"] == 2
    assert found["steps"] == {"low": 180, "likely": 180, "high": 180}
    assert found["device_hours"]["high"] == 0.1
    assert found["reached_limits"] == ("device_hours",)
    assert json.loads(json.dumps(found))["rungs"][0]["step"] == 90
