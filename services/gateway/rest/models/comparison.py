"""Jobs side by side."""

from pydantic import BaseModel

from services.gateway.rest.models.jobs import Best, JobSummary


class ComparedJob(JobSummary):
    best: Best | None


class ComparedLine(BaseModel):
    """`values` as text, one per job; "none" where a job has none."""

    name: str
    is_hyperparameter: bool
    differs: bool
    values: list[str]


class Comparison(BaseModel):
    jobs: list[ComparedJob]
    lines: list[ComparedLine]
