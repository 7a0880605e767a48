"""Hyperparameters in a job's command: `{learning_rate}` stands for the value.

`{{learning_rate}}` is the text `{learning_rate}`. Braces around anything but a name mean nothing
here, nor do those of a shell variable, `${NAME}`.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

_PLACE = re.compile(r"\{(\{[A-Za-z_]\w*\})\}|(?<!\$)\{([A-Za-z_]\w*)\}", re.ASCII)
# One variable for each hyperparameter, its name in capitals.
VARIABLE_PREFIX = "DRIVETRAIN_HP_"


def used(command: Sequence[str]) -> tuple[str, ...]:
    """The names in the command, in order."""
    found = (name for word in command for _, name in _PLACE.findall(word) if name)
    return tuple(dict.fromkeys(found))


def unknown(command: Sequence[str], names: Collection[str]) -> tuple[str, ...]:
    """The names in the command that are no hyperparameters, in order."""
    return tuple(name for name in used(command) if name not in names)


def no_hyperparameter(name: str) -> str:
    return f"the command holds {{{name}}}, which is not the name of a hyperparameter"


def fix(name: str) -> str:
    return f"give a value for {name}, or write {{{{{name}}}}} for the text {{{name}}}"


def fill(command: Sequence[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """The command with the values of hyperparameters; unknown names stay as they are."""

    def replace(place: re.Match[str]) -> str:
        literal, name = place.groups()
        if literal:
            return str(literal)
        return text_of(values[name]) if name in values else place[0]

    return tuple(_PLACE.sub(replace, word) for word in command)


def variables(values: Mapping[str, object]) -> dict[str, str]:
    return {variable(name): text_of(value) for name, value in values.items()}


def variable(name: str) -> str:
    return VARIABLE_PREFIX + name.upper()


def sharing_a_variable(names: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Names that differ only in their capitals, so that a variable would hold one of the values."""
    first: dict[str, str] = {}
    for name in names:
        if (before := first.setdefault(variable(name), name)) != name:
            yield before, name


def text_of(value: object) -> str:
    """The value as command lines write it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
