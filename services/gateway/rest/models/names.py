"""Ids found by a name or by their beginning."""

from pydantic import BaseModel


class FoundId(BaseModel):
    """`is_name`: the text is its name; else the text is the beginning of its id."""

    id: str
    name: str | None
    state: str | None
    is_name: bool


class IdList(BaseModel):
    """At most ten."""

    ids: list[FoundId]
