"""Records that a service could not handle, and what was decided about them."""

from datetime import datetime

from pydantic import BaseModel

from services.gateway.core.parked import ParkedState


class ShownBytes(BaseModel):
    """Bytes as received; `text` where they are printable, cut after 64 KiB."""

    size_bytes: int
    base64: str
    text: str | None
    is_cut: bool


class ParkedSummary(BaseModel):
    """A record that a service could not handle.

    `event_type` is empty where the record names no known type. `has_failed_again`: it was parked
    again after its last replay.
    """

    parked_id: str
    state: ParkedState
    service: str
    topic: str
    partition: int | None
    offset: int | None
    reason: str
    event_type: str
    detail: str
    size_bytes: int
    parked_at: datetime
    num_parkings: int
    replayed_at: datetime | None
    has_failed_again: bool
    decided_at: datetime | None
    decision_note: str


class Header(BaseModel):
    name: str
    value: ShownBytes


class ParkedRecord(ParkedSummary):
    """`is_omitted`: too large to be kept; read it from its topic, partition and offset."""

    is_omitted: bool
    key: ShownBytes | None
    value: ShownBytes | None
    headers: list[Header]


class ParkedList(BaseModel):
    records: list[ParkedSummary]
    next: str | None


class ParkedGroup(BaseModel):
    """How many records of one state have these in common."""

    service: str
    topic: str
    reason: str
    event_type: str
    num_records: int


class ParkedGroups(BaseModel):
    groups: list[ParkedGroup]


class ParkedDecision(BaseModel):
    """The result of one request. `next`: there is more; send it as `after`.

    `num_skipped` records cannot be replayed: too large to be kept, or of an unknown topic.
    """

    num_records: int
    num_skipped: int
    next: str | None
    is_confirmed: bool
