"""A validation error as text: the field, the problem, and the fix.

The text is for people who write YAML or JSON and may not know Python.
"""

from typing import Any

from pydantic import BaseModel, ValidationError

from drivetrain_schemas.base import Misfit
from drivetrain_schemas.jobs import FieldError
from drivetrain_schemas.suggestions import suggest
from drivetrain_schemas.text import WORDS

MAX_ERRORS = 20

UNKNOWN_FIX = "remove it, or check its spelling"

_PLAIN: dict[str, tuple[str, str]] = {
    "extra_forbidden": ("is not a known field", UNKNOWN_FIX),
    "missing": ("is missing", "add it"),
    "int_type": ("is not a whole number", "write a whole number without quotes"),
    "int_from_float": ("is not a whole number", "write a whole number without quotes"),
    "float_type": ("is not a number", "write a number without quotes"),
    "finite_number": ("is not a finite number", "write a finite number"),
    "string_type": ("is not text", "write text; put a number in quotes"),
    "string_unicode": ("is not Unicode text", "write text in UTF-8"),
    "bool_type": ("is neither true nor false", "write true or false"),
    "dict_type": ("is not a mapping", "write a mapping"),
    "model_type": ("is not a mapping", "write a mapping"),
    "model_attributes_type": ("is not a mapping", "write a mapping"),
    "tuple_type": ("is not a list", "write a list"),
    "list_type": ("is not a list", "write a list"),
    "timezone_aware": ("has no time zone", "write a time such as 2026-01-31T12:00:00Z"),
    **dict.fromkeys(
        ("datetime_type", "datetime_parsing", "datetime_from_date_parsing"),
        ("is not a time", "write a time such as 2026-01-31T12:00:00Z"),
    ),
}
_LIMITS: dict[str, tuple[str, str]] = {
    "greater_than": ("is too small", "write more than {gt}"),
    "greater_than_equal": ("is too small", "write {ge} or more"),
    "less_than": ("is too large", "write less than {lt}"),
    "less_than_equal": ("is too large", "write {le} or less"),
    "string_too_long": ("is too long", "write at most {max_length} characters"),
    "string_too_short": ("is too short", "write at least {min_length} characters"),
    "too_long": ("has too many entries", "give at most {max_length}"),
    "too_short": ("has too few entries", "give at least {min_length}"),
    "string_pattern_mismatch": ("does not have the right form", "match {pattern}"),
    "enum": ("is not one of the allowed values", "write {expected}"),
    "literal_error": ("is not one of the allowed values", "write {expected}"),
    "union_tag_invalid": ("is not one of the allowed values", "write one of {expected_tags}"),
    "union_tag_not_found": ("is missing", "add it"),
}
# pydantic puts the branch of a discriminated union into the path; it is not a field.
_BRANCHES = frozenset({"uniform", "integer", "choice", "constant", "group"})
_PRUNERS = frozenset(
    {
        "median",
        "percentile",
        "patience",
        "threshold",
        "halving",
        "hyperband",
        "asha",
        "pasha",
        "population",
        "auto",
    }
)


def field_errors(
    error: ValidationError, within: str = "", contract: type[BaseModel] | None = None
) -> tuple[FieldError, ...]:
    """The first errors, each with the dotted path of its field (below `within`).

    With the contract that was not met, an unknown field is named with the one it may mean.
    """
    items = error.errors()
    paths = {item["loc"][:length] for item in items for length in range(len(item["loc"]))}
    # pydantic reports a list with invalid entries as too short as well: one mistake, not two.
    found = [item for item in items if item["type"] != "too_short" or item["loc"] not in paths]
    meant: dict[Any, str] = {}
    if contract is not None:
        for item in found[:MAX_ERRORS]:
            if item["type"] == "extra_forbidden":
                known = suggest(contract, _path([str(part) for part in item["loc"]]))
                meant |= {item["loc"]: known} if known else {}
    # A misspelt field is missing as well: one mistake, not two.
    wrong = {tuple(known.split(".")) for known in meant.values()}
    found = [
        item
        for item in found
        if item["type"] != "missing" or tuple(str(part) for part in item["loc"]) not in wrong
    ]
    return tuple(_field_error(item, within, meant.get(item["loc"])) for item in found[:MAX_ERRORS])


def _field_error(item: Any, within: str, meant: str | None) -> FieldError:
    context = item.get("ctx", {})
    path = ([within] if within else []) + _path([str(part) for part in item["loc"]])
    misfit = context.get("error")
    if isinstance(misfit, Misfit):
        message, fix = str(misfit), misfit.fix
        path += [misfit.field] if misfit.field else []
    elif item["type"] in _PLAIN:
        message, fix = _PLAIN[item["type"]]
        fix = f"did you mean {meant}?" if meant else fix
    elif item["type"] in _LIMITS:
        message, template = _LIMITS[item["type"]]
        words = WORDS.get(context.get("pattern", ""))
        fix = f"write {words}" if words else template.format(**context)
        if item["type"].startswith("union_tag_"):
            path.append(context["discriminator"].strip("'"))
    else:
        message, fix = str(item["msg"]).removeprefix("Value error, "), ""
    return FieldError(
        field=(".".join(path) or "(whole)")[:256], message=message[:512], fix=fix[:512]
    )


def _path(parts: list[str]) -> list[str]:
    """The fields only: without the "[key]" of a mapping and without the branch of a union."""
    return [
        part
        for index, part in enumerate(parts)
        if part != "[key]"
        and not (index >= 2 and part in _BRANCHES and parts[index - 2] in ("space", "parameters"))
        and not (index >= 1 and part in _PRUNERS and parts[index - 1] == "pruner")
    ]
