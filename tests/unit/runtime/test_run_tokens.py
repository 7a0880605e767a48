"""A report counts only with the token of the run that it names."""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import SecretStr

from drivetrain_schemas.envelope import Event, InvalidEvent, encode_structured
from drivetrain_schemas.ids import job_id_for, pod_id_for, run_id_for
from drivetrain_schemas.reports import PodHeartbeat, SchedulerBeacon
from services.runtime.bus import Record
from services.runtime.run_tokens import RunTokens
from tests.events import make_event, make_record

JOB, OTHER = job_id_for("default", "r1"), job_id_for("default", "r2")
TOKENS = RunTokens(SecretStr("a-key-that-only-services-have"))


def make_beat(job_id: str = JOB, **facts: Any) -> Event[PodHeartbeat]:
    values = {
        "tenant_id": "default",
        "job_id": job_id,
        "run_id": run_id_for(JOB, 1),
        "attempt": 1,
        "fence": 7,
        "pod_id": pod_id_for(JOB, 1, 0),
        "phase": "training",
        "sent_at": datetime(2026, 1, 1, tzinfo=UTC),
    }
    return make_event(PodHeartbeat.model_validate(values | facts))


def signed(event: Event[Any], token: str | None) -> Record:
    return make_record(replace(event, run_token=token))


OWN = TOKENS.of(run_id_for(JOB, 1), 7)


def test_a_report_with_the_token_of_its_run_counts() -> None:
    event = TOKENS.read(signed(make_beat(), OWN))
    assert event is not None
    assert event.payload == make_beat().payload


@pytest.mark.parametrize(
    ("event", "token"),
    [
        (make_beat(), None),
        (make_beat(), "0" * 32),
        (make_beat(), "\u00e9"),
        (make_beat(), TOKENS.of(run_id_for(JOB, 1), 8)),
        (make_beat(run_id=run_id_for(OTHER, 1)), OWN),
        (make_beat(fence=8), OWN),
        (make_beat(OTHER), OWN),
        (make_beat(attempt=2), OWN),
        (make_beat(), RunTokens(SecretStr("another-key-of-someone")).of(run_id_for(JOB, 1), 7)),
    ],
)
def test_any_other_pods_report_is_ignored(event: Event[PodHeartbeat], token: str | None) -> None:
    assert TOKENS.read(signed(event, token)) is None


def test_the_token_is_read_in_structured_mode_too() -> None:
    for token, is_read in ((OWN, True), ("0" * 32, False)):
        headers, key, value = encode_structured(replace(make_beat(), run_token=token))
        record = Record("drivetrain.reports", 0, 0, 0, key, value, tuple(headers))
        assert (TOKENS.read(record) is not None) is is_read


def test_what_no_pod_sends_needs_no_token() -> None:
    beacon = make_event(SchedulerBeacon(run_id="beacon-1", number=1))
    assert TOKENS.read(make_record(beacon)) is not None


def test_without_a_key_nothing_is_signed_or_checked() -> None:
    unkeyed = RunTokens(None)
    assert unkeyed.of(run_id_for(JOB, 1), 7) is None
    assert unkeyed.read(signed(make_beat(), None)) is not None


def test_a_record_that_cannot_be_read_is_still_refused() -> None:
    with pytest.raises(InvalidEvent):
        TOKENS.read(Record("drivetrain.reports", 0, 0, 0, b"key", b"{", ()))
