"""Parked records as a replay puts them back."""

from services.runtime.bus import OutRecord, Record
from services.runtime.parking import HEADER, parked_fact, replay_header


def put_back(parked: Record) -> OutRecord:
    """What the gateway publishes to replay this record of a parked topic."""
    own = (header for header in parked.headers if not header[0].startswith(HEADER))
    headers = (*own, replay_header(parked_fact(parked, "id")))
    return OutRecord(parked_fact(parked, "topic"), parked.key, parked.value, headers)
