"""What a job ran with, and what a repetition of it would have otherwise."""

from typing import Any

from pydantic import BaseModel


class Difference(BaseModel):
    what: str
    was: str
    now: str


class Reproduction(BaseModel):
    """`surroundings`: what its newest attempt has recorded: packages, seed, devices, data.

    `would_differ`: in a repetition. `has_differed`: where this job is the repetition of `rerun_of`.
    `variables`: the names of those that the spec sets; their values are not shown.
    """

    job_id: str
    command: list[str]
    code_sha256: str | None
    image: str | None
    source: dict[str, Any] | None
    seed: int | None
    variables: list[str]
    surroundings: dict[str, Any] | None
    rerun_of: str | None
    would_differ: list[Difference]
    has_differed: list[Difference]
