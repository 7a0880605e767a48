"""The fold of the whole read model: views and a batch of events in, changed views out."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from services.gateway.core.alerts import ALERTS, WARNINGS
from services.gateway.core.budgets import BUDGETS
from services.gateway.core.charges import CHARGES
from services.gateway.core.checkpoints import CHECKPOINTS
from services.gateway.core.counters import Change
from services.gateway.core.descriptions import DESCRIPTIONS
from services.gateway.core.jobs import JOBS
from services.gateway.core.nodes import ALLOCATIONS, NODES
from services.gateway.core.noun import Key, Noun
from services.gateway.core.progress import PROGRESS
from services.gateway.core.rejections import REJECTIONS
from services.gateway.core.requests import REQUESTS
from services.gateway.core.runs import RUNS
from services.gateway.core.silences import SILENCES
from services.gateway.core.studies import STUDIES
from services.gateway.core.trials import RUNGS, TRIALS

NOUNS: tuple[Noun, ...] = (
    REQUESTS,
    JOBS,
    RUNS,
    ALLOCATIONS,
    NODES,
    CHECKPOINTS,
    ALERTS,
    WARNINGS,
    DESCRIPTIONS,
    CHARGES,
    BUDGETS,
    SILENCES,
    STUDIES,
    TRIALS,
    RUNGS,
    REJECTIONS,
    PROGRESS,
)
Views = Mapping[Noun, Mapping[Key, Any]]

_CHANGED_BY: dict[type[Payload], tuple[Noun, ...]] = {}
for _noun in NOUNS:
    for _payload in _noun.rules:
        _CHANGED_BY[_payload] = (*_CHANGED_BY.get(_payload, ()), _noun)


def touched(events: Iterable[Event[Any]]) -> dict[Noun, set[Key]]:
    """The views that these events may change."""
    keys: dict[Noun, set[Key]] = {}
    for event in events:
        for noun in _CHANGED_BY.get(type(event.payload), ()):
            key = noun.find_key(event)
            if key is not None:
                keys.setdefault(noun, set()).add(key)
    return keys


def fold(before: Views, events: Sequence[Event[Any]]) -> dict[Noun, dict[Key, Change]]:
    """What these events change. `before` has every existing view that they touch."""
    after: dict[Noun, dict[Key, Any]] = {noun: dict(views) for noun, views in before.items()}
    for event in events:
        for noun in _CHANGED_BY.get(type(event.payload), ()):
            key = noun.find_key(event)
            if key is not None:
                views = after.setdefault(noun, {})
                views[key] = noun.apply(views.get(key), event)
    return {
        noun: {
            key: Change(known, view)
            for key, view in sorted(views.items())
            if (known := before.get(noun, {}).get(key)) is not view and known != view
        }
        for noun, views in after.items()
    }
