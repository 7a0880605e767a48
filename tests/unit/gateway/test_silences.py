"""Silences as views: late and doubled events give the same view at the end."""

from datetime import UTC, datetime
from itertools import permutations

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.silences import (
    AlertName,
    SilenceChanged,
    SilenceEnded,
    SilenceSpec,
    silence_id_for,
)
from services.gateway.core.silences import SILENCES, Silence

AT = datetime(2026, 1, 1, tzinfo=UTC)


def spec(hour: int) -> SilenceSpec:
    return SilenceSpec(alert=AlertName.SLOWER, ends_at=AT.replace(hour=hour), reason=str(hour))


SILENCE_ID = silence_id_for("default", spec(1))


def told(seq: int, payload: Payload) -> Event[Payload]:
    return Event(f"event-{seq}", "/drivetrain/metrics", AT, "default", payload, seq=seq)


def changed(seq: int, hour: int) -> Event[Payload]:
    command = f"command-{seq}"
    about = {"tenant_id": "default", "silence_id": SILENCE_ID, "command_event_id": command}
    return told(seq, SilenceChanged(**about, spec=spec(hour), created_at=AT))


def test_the_order_of_events_does_not_matter() -> None:
    ended = SilenceEnded(tenant_id="default", silence_id=SILENCE_ID, spec=spec(2), ended_at=AT)
    events = [changed(1, 1), changed(2, 2), told(3, ended), changed(4, 4)]
    found: set[Silence] = set()
    for order in permutations([*events, events[1]]):
        view = None
        for event in order:
            view = SILENCES.apply(view, event)
        found.add(view)
    (view,) = found
    assert (view.reason, view.command_event_id) == ("4", "command-4")
    assert view.changed_seq > view.ended_seq, "set again after its end"
