"""Parked records: what people decided about records that a service could not handle.

The records themselves are on `parked.<service>`; these events say what was done with them.
"""

from typing import Annotated

from pydantic import Field

from drivetrain_schemas.base import Payload, UtcTime, Value, event
from drivetrain_schemas.ids import DecisionId
from drivetrain_schemas.text import form, free_text
from drivetrain_schemas.topics import EVENTS_PARKED

MAX_RECORDS = 1000
ParkedId = Annotated[str, form("[!-~]{1,128}", "1 to 128 printable ASCII characters, no space")]
Note = Annotated[str, free_text(512)]


class ParkedRecord(Value):
    """`num_parkings`: how often it had been parked when the decision was made."""

    parked_id: ParkedId
    num_parkings: Annotated[int, Field(ge=1, le=2**31 - 1)] = 1


ParkedRecords = Annotated[tuple[ParkedRecord, ...], Field(min_length=1, max_length=MAX_RECORDS)]


@event("parked.replayed", topic=EVENTS_PARKED, producer="gateway")
class ParkedReplayed(Payload):
    """The records were published again on the topics that they came from."""

    decision_id: DecisionId
    records: ParkedRecords
    decided_at: UtcTime


@event("parked.discarded", topic=EVENTS_PARKED, producer="gateway")
class ParkedDiscarded(Payload):
    """The records need no handling: they leave the list, and stay readable."""

    decision_id: DecisionId
    records: ParkedRecords
    decided_at: UtcTime
    note: Note = ""
