"""The fields of a form that a page sends: few, small, each once. Raises Problem (422)."""

from urllib.parse import parse_qsl

from fastapi import Request

from services.gateway.problem import invalid

MAX_FIELDS = 20


async def fields_of(request: Request) -> dict[str, str]:
    """By name, without those that were left empty. The gate has checked origin and size."""
    try:
        body = (await request.body()).decode("utf-8")
        pairs = parse_qsl(body, errors="strict", max_num_fields=MAX_FIELDS)
    except ValueError as error:
        message = f"is not a form: {error}"[:200]
        raise invalid("(body)", message, "send the page's own form") from None
    fields = {name[:80]: value for name, value in pairs if value.strip()}
    for name, value in fields.items():
        if "\0" in name + value:
            raise invalid(name.replace("\0", "?"), "has a NUL character", "leave it out")
    return fields
