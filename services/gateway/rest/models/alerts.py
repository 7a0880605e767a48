"""Alerts about runs, and the silences that nobody is called by."""

from datetime import datetime
from typing import Literal

from pydantic import BaseModel


class SilencedBy(BaseModel):
    """The silence that an alert is of now; where several are, the one that ends last."""

    silence_id: str
    ends_at: datetime
    reason: str


class Alert(BaseModel):
    """Something about a run that needs attention."""

    run_id: str
    attempt: int
    alert: str
    series: str | None
    step: int | None
    detail: str
    raised_at: datetime | None
    silence: SilencedBy | None = None


class ListedAlert(Alert):
    """`open`: it is raised, and its run has not ended. `hint`: what can be done about it."""

    job_id: str
    job_name: str | None
    job_url: str
    project: str | None
    state: Literal["open", "ended"]
    ended_at: datetime | None
    hint: str


class AlertList(BaseModel):
    """`next` is the `after` of the following page, None at the end."""

    alerts: list[ListedAlert]
    next: str | None


class Silence(BaseModel):
    """Without an alert: every one. Without a job and a project: of the whole tenant."""

    silence_id: str
    alert: str | None
    job_id: str | None
    project: str | None
    reason: str
    created_at: datetime
    ends_at: datetime


class SilenceList(BaseModel):
    """Those in force, the one that ends first, first."""

    silences: list[Silence]


class SilenceAccepted(BaseModel):
    """`is_confirmed`: the service that decides has accepted it; otherwise it was only sent."""

    is_confirmed: bool
    silence_id: str
    ends_at: datetime
