"""A refused request: the HTTP status, a code for machines, and what is wrong field by field."""

from collections.abc import Mapping, Sequence

from drivetrain_schemas.jobs import FieldError


class Problem(Exception):
    """Ends a request with a refusal."""

    def __init__(
        self,
        status: int,
        code: str,
        detail: str,
        errors: Sequence[FieldError] = (),
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.code = code
        self.detail = detail
        self.errors = tuple(errors)
        self.headers = dict(headers or {})


def not_found(what: str, subject_id: str) -> Problem:
    return Problem(404, "not_found", f"there is no {what} {subject_id[:120]}")


def invalid(field: str, message: str, fix: str = "") -> Problem:
    error = FieldError(field=field, message=message, fix=fix)
    return Problem(422, "invalid_request", f"{field}: {message}", (error,))
