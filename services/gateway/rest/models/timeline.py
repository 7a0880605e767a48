"""What happened to a job or a study, event by event."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel


class TimelineItem(BaseModel):
    """One event as a sentence (`text`, `tone`) and as it was (`data`)."""

    event_id: str
    type: str
    occurred_at: datetime
    text: str
    tone: Literal["plain", "good", "warning", "bad"]
    detail: str
    data: dict[str, Any]


class Timeline(BaseModel):
    items: list[TimelineItem]
    next: str | None
