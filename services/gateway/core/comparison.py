"""What differs between jobs: hyperparameters and the other fields of their specs.

In: specs as plain JSON. Out: rows of a name and one value per job, those that differ first. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Spec = Mapping[str, Any]

# Where a spec does not have a value that another one has.
ABSENT = "none"
# Stands for a group of values that are not known: none of them differs from those of other jobs.
NOT_RECORDED = "not recorded"
_NOT_COMPARED = ("name", "hyperparameters")


@dataclass(frozen=True, slots=True)
class Line:
    """`values` as text, in the order of the jobs. `is_hyperparameter`: as opposed to the spec."""

    name: str
    values: tuple[str, ...]
    is_hyperparameter: bool

    @property
    def differs(self) -> bool:
        return len(set(self.values)) > 1


def differences(specs: Sequence[Spec]) -> list[Line]:
    """Every hyperparameter; of the rest of the specs, only what differs where it is known."""
    points = [spec.get("hyperparameters") or {} for spec in specs]
    others = [_flat({k: v for k, v in spec.items() if k not in _NOT_COMPARED}) for spec in specs]
    lines = _lines(points, is_hyperparameter=True)
    lines += [line for line in _lines(others, is_hyperparameter=False) if _is_shown(line)]
    return sorted(lines, key=lambda line: (not line.is_hyperparameter, not line.differs))


def _is_shown(line: Line) -> bool:
    return len(set(line.values) - {NOT_RECORDED}) > 1


def _lines(columns: Sequence[Mapping[str, Any]], *, is_hyperparameter: bool) -> list[Line]:
    names = sorted({name for column in columns for name in column})
    return [
        Line(name, tuple(_value(column, name) for column in columns), is_hyperparameter)
        for name in names
    ]


def _value(column: Mapping[str, Any], name: str) -> str:
    if name in column:
        return _text(column[name])
    is_unknown = column.get(name.partition(".")[0]) == NOT_RECORDED
    return NOT_RECORDED if is_unknown else ABSENT


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """{"resources": {"devices": 2}} -> {"resources.devices": 2}; lists stay as they are."""
    flat: dict[str, Any] = {}
    for name, inner in value.items():
        if isinstance(inner, Mapping):
            flat |= _flat(inner, f"{prefix}{name}.")
        else:
            flat[f"{prefix}{name}"] = inner
    return flat


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(str(item) for item in value) or ABSENT
    return ABSENT if value is None else str(value)
