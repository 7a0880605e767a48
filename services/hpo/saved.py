"""A search as rows, and rows as a search. Pure."""

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from services.hpo.core.limits import Limits
from services.hpo.core.ranking import Ranked
from services.hpo.core.search import Search
from services.hpo.core.status import Numbers, Open, Phase, Status
from services.hpo.core.trials import Measured, Trial, TrialState
from services.hpo.store import StudyRow, TrialRow


def dump_status(status: Status) -> str:
    """As `asdict` would, which copies every value and takes ten times as long."""
    written = _fields_of(status)
    numbers = _fields_of(status.numbers)
    written["numbers"] = numbers | {"limits": _fields_of(status.numbers.limits)}
    written["best"] = None if status.best is None else _fields_of(status.best)
    return json.dumps(written)


def _fields_of(value: Status | Numbers | Limits | Ranked) -> dict[str, Any]:
    return {name: getattr(value, name) for name in type(value).__slots__}


def load_status(study: StudyRow) -> Status:
    fields: dict[str, Any] = json.loads(study.status)
    written = fields.pop("numbers")
    limits = Limits(**written.pop("limits"))
    best = fields.pop("best")
    return Status(
        numbers=Numbers(**written, limits=limits),
        best=None if best is None else Ranked(**best),
        **fields,
    )


def study_row(study: StudyRow, search: Search, stamp: str, num_events: int) -> StudyRow:
    """The row after so many more events."""
    status = search.status
    return replace(
        study,
        status=dump_status(status),
        stamp=stamp,
        revision=study.revision + num_events,
        num_trials=max(status.num_trials, len(search.trials)),
        num_completed=status.num_completed,
        num_failed=status.num_failed,
        num_stopped=status.num_stopped,
        is_finished=status.is_finished,
    )


def trial_row(search: Search, number: int, detail: str | None) -> TrialRow:
    trial = search.trials[number]
    opened = search.opened.get(number)
    return TrialRow(
        number=number,
        hyperparameters=json.dumps(trial.point, ensure_ascii=False),
        state=trial.state.value,
        detail=detail,
        objectives=json.dumps(trial.values),
        is_safe=trial.is_safe,
        measured=_dump_measured(trial.measured),
        parent=trial.parent,
        opened=None if opened is None else _dump_open(opened),
    )


def load_trials(rows: Iterable[TrialRow]) -> tuple[list[Trial], dict[int, Open]]:
    trials, opened = [], {}
    for row in rows:
        trial = load_trial(row)
        trials.append(trial)
        if not trial.state.is_final:
            opened[row.number] = _load_open(row.opened)
    return trials, opened


def load_trial(row: TrialRow) -> Trial:
    return Trial(
        number=row.number,
        point=json.loads(row.hyperparameters),
        state=TrialState(row.state),
        values=tuple(json.loads(row.objectives)),
        is_safe=row.is_safe,
        measured=_load_measured(json.loads(row.measured)),
        parent=row.parent,
    )


def _dump_open(opened: Open) -> str:
    late = [[one.step, one.value] for one in opened.late]
    return json.dumps([opened.phase.value, opened.reason, opened.holds_devices, late])


def _load_open(text: str | None) -> Open:
    if text is None:
        return Open()
    phase, reason, holds_devices, late = json.loads(text)
    return Open(Phase(phase), reason, holds_devices, _load_measured(late))


def _dump_measured(measured: tuple[Measured, ...]) -> str:
    return json.dumps([[one.step, one.value] for one in measured])


def _load_measured(pairs: list[Any]) -> tuple[Measured, ...]:
    return tuple(Measured(step, value) for step, value in pairs)
