"""Answers to commands: accepted, or why not."""

from pydantic import BaseModel

from services.gateway.rest.problems import FieldProblem


class Refusal(BaseModel):
    """Why the request that would have made this was refused."""

    reason: str
    detail: str
    errors: list[FieldProblem]


class Accepted(BaseModel):
    """`is_confirmed`: the service that decides has accepted it; otherwise it was only sent."""

    is_confirmed: bool
