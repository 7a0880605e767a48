"""What a validation error tells its reader: the field, what is wrong, and the fix."""

from typing import Any

from pydantic import ValidationError

from drivetrain_schemas.jobs import FieldError

MAX_ERRORS = 20

_FIXES = {
    "extra_forbidden": "remove it, or check its spelling",
    "missing": "add it",
    "int_type": "write a whole number without quotes",
    "float_type": "write a number without quotes",
    "string_type": "write a string",
    "bool_type": "write true or false",
    "dict_type": "write a mapping",
    "tuple_type": "write a list",
    "finite_number": "write a finite number",
}


def field_errors(error: ValidationError, within: str = "") -> tuple[FieldError, ...]:
    """The first errors, each with the dotted path of its field (below `within`)."""
    return tuple(_field_error(item, within) for item in error.errors()[:MAX_ERRORS])


def _field_error(item: Any, within: str) -> FieldError:
    path = [str(part) for part in item["loc"] if not _is_branch(str(part))]
    name = ".".join(([within] if within else []) + path) or "(whole)"
    message = str(item["msg"]).removeprefix("Value error, ")
    context = item.get("ctx", {})
    fix = _FIXES.get(item["type"], "")
    if not fix and "expected" in context:
        fix = f"write {context['expected']}"
    if not fix and item["type"] == "string_pattern_mismatch":
        fix = f"match {context.get('pattern')}"
    return FieldError(field=name[:256], message=message[:512], fix=fix[:512])


def _is_branch(part: str) -> bool:
    """Names that pydantic adds for the branches of a union; they are no fields."""
    return part.startswith(("constrained-", "function-")) or part in ("str", "int", "float", "bool")
