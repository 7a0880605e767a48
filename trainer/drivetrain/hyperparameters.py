"""Which hyperparameters a run uses: the script's defaults, overridden by the job.

Pure. A name that the script does not declare is refused, because trials of a search over a misspelt
name would not differ. A name in the job's command reaches the script as an argument.
"""

import difflib
from collections.abc import Collection, Mapping
from types import MappingProxyType

from drivetrain.errors import InvalidHyperparameters

Scalar = bool | int | float | str


def merge(
    defaults: Mapping[str, Scalar],
    overrides: Mapping[str, Scalar],
    in_command: Collection[str] = (),
) -> Mapping[str, Scalar]:
    """The values of this run, read-only. Raises InvalidHyperparameters naming the field.

    `in_command`: names that need not be declared, because the command holds their values.
    """
    merged = dict(defaults)
    for name, value in overrides.items():
        if name in defaults:
            merged[name] = _as_type_of(defaults[name], name, value)
        elif name in in_command:
            merged[name] = value
        else:
            raise InvalidHyperparameters(_unknown(name, defaults))
    return MappingProxyType(merged)


def _unknown(name: str, defaults: Mapping[str, Scalar]) -> str:
    near = difflib.get_close_matches(name, defaults, n=1)
    has = f"it has {', '.join(sorted(defaults)) or 'none'}."
    hint = f"did you mean {near[0]}?" if near else has
    return (
        f"hyperparameters.{name}: the script has no such hyperparameter; {hint} "
        "Declare it with drivetrain.run(hyperparameters={...}), "
        f"pass it in the command as {{{name}}}, or remove it from the job."
    )


def _as_type_of(default: Scalar, name: str, value: Scalar) -> Scalar:
    if type(value) is type(default):
        return value
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    is_whole = isinstance(value, float) and value.is_integer()
    if isinstance(default, int) and not isinstance(default, bool) and is_whole:
        return int(value)
    raise InvalidHyperparameters(
        f"hyperparameters.{name}: {value!r} is a {type(value).__name__}, "
        f"the script's default {default!r} is a {type(default).__name__}"
    )
