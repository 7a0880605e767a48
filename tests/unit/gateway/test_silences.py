"""Silences as views: late and doubled events give the same view at the end."""

from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import pytest

from drivetrain_schemas.base import Payload
from drivetrain_schemas.envelope import Event
from drivetrain_schemas.metrics import AlertKind
from drivetrain_schemas.silences import (
    SilenceChanged,
    SilenceEnded,
    SilenceSpec,
    silence_id_for,
)
from services.gateway.core.silences import SILENCES, Silence, by_subject, silence_of

AT = datetime(2026, 1, 1, tzinfo=UTC)


def spec(hour: int) -> SilenceSpec:
    return SilenceSpec(alert=AlertKind.SLOWER, ends_at=AT.replace(hour=hour), reason=str(hour))


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


def row(silence_id: str, hour: int, **subject: str | None) -> dict[str, Any]:
    of_all = {"alert": None, "job_id": None, "project": None}
    return {**of_all, **subject, "silence_id": silence_id, "ends_at": AT.replace(hour=hour)}


@pytest.mark.parametrize(
    ("subject", "is_of"),
    [
        ({}, True),
        ({"alert": "slower"}, True),
        ({"job_id": "job_a", "project": "p"}, True),
        ({"alert": "stalled"}, False),
        ({"job_id": "job_b"}, False),
        ({"alert": "slower", "project": "q"}, False),
    ],
)
def test_a_silence_is_of_what_it_names(subject: dict[str, str], is_of: bool) -> None:
    found = silence_of(by_subject([row("a", 1, **subject)]), "slower", "job_a", "p")
    assert (found is not None) == is_of


def test_the_longest_silence_counts_and_of_equal_ones_always_the_same() -> None:
    rows = [row("b", 2), row("a", 1), row("c", 1, alert="slower"), row("d", 3, alert="stalled")]
    for order in permutations(rows):
        found = silence_of(by_subject(order), "slower", "job_a", None)
        assert found is not None
        assert found["silence_id"] == "b"
    for pair in permutations([row("a", 1), row("b", 1)]):
        assert by_subject(pair)[(None, None, None)]["silence_id"] == "b"
    assert silence_of({}, "slower", "job_a", None) is None


def test_a_silence_of_every_alert_has_no_name_of_one() -> None:
    every = SilenceSpec(ends_at=AT.replace(hour=1))
    about = {"tenant_id": "default", "silence_id": SILENCE_ID, "command_event_id": "c"}
    event = told(1, SilenceChanged(**about, spec=every, created_at=AT))
    assert SILENCES.apply(None, event).alert is None
    assert SILENCES.apply(None, changed(1, 1)).alert == "slower"
