"""What routes read off a request: its parameters, its address as the caller wrote it, its id."""

import secrets

from fastapi import Request
from pydantic import BaseModel, TypeAdapter, ValidationError

from drivetrain_schemas.ids import RequestId
from services.gateway.problem import invalid

_REQUEST_ID: TypeAdapter[str] = TypeAdapter(RequestId)


def refuse_unknown_query(request: Request) -> None:
    """A misspelt parameter must not be dropped silently, as a misspelt field is not."""
    known: set[str] = set()
    for parameter in request.scope["route"].dependant.query_params:
        annotation = parameter.field_info.annotation
        is_model = isinstance(annotation, type) and issubclass(annotation, BaseModel)
        known |= set(annotation.model_fields) if is_model else {parameter.alias}
    for name in request.query_params:
        if name not in known:
            message = f"{name[:80]!r} is not a parameter here"
            raise invalid(name[:80], message, f"known are {', '.join(sorted(known)) or 'none'}")


def base_url(request: Request) -> str:
    """`http://host:port`, with a host that the gate has accepted."""
    return f"{request.url.scheme}://{request.headers['host']}"


def chosen_request_id(in_body: str | None, in_header: str | None) -> str:
    """The body's, else the Idempotency-Key, else a new one. Raises Problem where they differ."""
    if in_header is not None:
        try:
            _REQUEST_ID.validate_python(in_header)
        except ValidationError:
            message = "it is not 1-128 printable ASCII characters"
            raise invalid("Idempotency-Key", message, "write for example a UUID") from None
        if in_body is not None and in_body != in_header:
            raise invalid(
                "request_id", "it differs from the Idempotency-Key", "give one of the two"
            )
    return in_body or in_header or f"rest-{secrets.token_hex(12)}"
