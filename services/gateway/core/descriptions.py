"""What a run has said of its surroundings, as it said last."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drivetrain_schemas.descriptions import RunDescribed
from drivetrain_schemas.envelope import Event
from services.gateway.core.noun import NEVER, Noun, given, newest

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Description:
    """`surroundings` as JSON; see drivetrain_schemas.descriptions."""

    run_id: str
    job_id: str
    attempt: int
    described_seq: int = NEVER
    surroundings: dict[str, Any] | None = None


def _described(before: Description, event: Event[RunDescribed]) -> Description:
    return newest(before, "described_seq", event, **given(event, "surroundings"))


def hyperparameters(spec: Json | None, surroundings: Json | None) -> dict[str, Any]:
    """What a run used: also those that only the script names, once the run has said them."""
    return ((spec or {}).get("hyperparameters") or {}) | (
        (surroundings or {}).get("hyperparameters") or {}
    )


DESCRIPTIONS = Noun(
    table="descriptions",
    view=Description,
    key=("run_id",),
    rules={RunDescribed: _described},
)
