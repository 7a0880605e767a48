"""Silences: which alerts they are of, until when one is silenced, and which ones are refused."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

# The sender's clock may be ahead of ours.
CLOCK_DIFFERENCE = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class Silence:
    """None: every alert; every job; every project."""

    alert: str | None
    job_id: str | None
    project: str | None
    ends_at: datetime


@dataclass(frozen=True, slots=True)
class About:
    """What is alerted, and of which job."""

    alert: str
    job_id: str
    project: str | None


@dataclass(frozen=True, slots=True)
class Refused:
    reason: Literal["too_many", "already_over", "too_long"]
    detail: str
    field: str
    fix: str


@dataclass(frozen=True, slots=True)
class Limits:
    """How many silences a tenant has at most, and how long each lasts."""

    num_silences: int
    duration: timedelta


def is_of(silence: Silence, about: About) -> bool:
    return (
        silence.alert in (None, about.alert)
        and silence.job_id in (None, about.job_id)
        and silence.project in (None, about.project)
    )


def silenced_until(silences: Iterable[Silence], about: About, now: datetime) -> datetime | None:
    """When the last of the silences of this alert ends; None where none is in force."""
    ends = [each.ends_at for each in silences if each.ends_at > now and is_of(each, about)]
    return max(ends, default=None)


def refusal(ends_at: datetime, now: datetime, num_others: int, limits: Limits) -> Refused | None:
    """Why a silence until `ends_at` is not made. `num_others`: those of the tenant in force."""
    if ends_at <= now:
        detail = f"it would have ended at {_text(ends_at)}"
        return Refused("already_over", detail, "spec.ends_at", "write a time to come")
    if ends_at > now + limits.duration + CLOCK_DIFFERENCE:
        days = limits.duration.days
        fix = f"write a time before {_text(now + limits.duration)}"
        detail = f"a silence lasts {days} days at most"
        return Refused("too_long", detail, "spec.ends_at", fix)
    if num_others >= limits.num_silences:
        detail = f"the tenant has {limits.num_silences} silences"
        return Refused("too_many", detail, "spec", "end one first")
    return None


def _text(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"
