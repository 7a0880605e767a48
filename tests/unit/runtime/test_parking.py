"""A parked record: its bytes as they were, and why and where in headers."""

from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from services.runtime.bus import Record
from services.runtime.parking import (
    MAX_BYTES_A_DAY,
    MAX_KEPT_BYTES,
    MAX_RECORDS_A_DAY,
    InvalidRecord,
    ParkedDay,
    counted,
    parked_fact,
    parked_headers,
    parked_id,
)
from tests.parked import put_back

NOW = datetime(2026, 3, 1, tzinfo=UTC)
RECORD = Record(
    "t.events.jobs",
    3,
    41,
    int(NOW.timestamp() * 1000),
    b"job_a",
    b"\xff not json",
    (("ce_id", b"1"), ("x", b"")),
)


def parked(record: Record, detail: str = "not JSON") -> Record:
    own = [(name.replace("\0", "\ufffd"), text) for name, text in record.headers]
    headers = (*own, *parked_headers("cost", InvalidRecord(record, "not_json", detail)))
    return replace(record, topic="t.parked.cost", partition=0, offset=0, headers=headers)


def test_why_and_where_can_be_read() -> None:
    record = parked(RECORD)
    facts = {name: parked_fact(record, name) for name in ("reason", "topic", "partition", "offset")}
    assert facts == {
        "reason": "not_json",
        "topic": "t.events.jobs",
        "partition": "3",
        "offset": "41",
    }
    assert parked_fact(record, "no such fact") == ""


def test_the_record_is_kept_byte_by_byte() -> None:
    again = put_back(parked(RECORD))
    assert (again.topic, again.key, again.value) == ("t.events.jobs", RECORD.key, RECORD.value)
    assert again.headers[:-1] == RECORD.headers


def replayed(parked_record: Record, offset: int) -> Record:
    """As the service reads it after the replay."""
    again = put_back(parked_record)
    return Record(
        again.topic, 3, offset, RECORD.timestamp_ms, again.key, again.value, again.headers
    )


def test_a_replay_that_fails_again_is_the_same_parked_record_at_another_place() -> None:
    record, name = RECORD, parked_id("cost", RECORD)
    for offset in range(50, 53):
        record = replayed(parked(record), offset)
        assert parked_fact(parked(record), "id") == name
        assert parked_fact(parked(record), "offset") == str(offset)
        assert len(record.headers) == len(RECORD.headers) + 1


@pytest.mark.parametrize(
    "change",
    [
        {"key": b"job_b"},
        {"value": b"\xff other"},
        {"headers": (("ce_id", b"2"), ("x", b""))},
        {"headers": (("ce_id", b"1"), ("x", None))},
        {"headers": ()},
    ],
)
def test_a_record_that_claims_to_be_a_replay_of_another_content_is_parked_as_its_own(
    change: dict[str, Any],
) -> None:
    """A client could otherwise hide its broken records behind one that was replayed."""
    genuine = replayed(parked(RECORD), 50)
    claim = genuine.headers[-1]
    changed = replace(genuine, **change)
    forged = replace(changed, headers=(*(h for h in changed.headers if h != claim), claim))
    assert parked_id("cost", genuine) == parked_id("cost", RECORD)
    assert parked_id("cost", forged) != parked_id("cost", RECORD)


@pytest.mark.parametrize("claim", ["<script>", "", "parked_", "parked_" + "a" * 26])
def test_a_claim_that_proves_nothing_changes_nothing(claim: str) -> None:
    headers = (*RECORD.headers, ("x-parked-replay-of", claim.encode()))
    assert parked_id("cost", replace(RECORD, headers=headers)) == parked_id("cost", RECORD)


def test_a_replay_parked_by_another_service_is_a_record_of_its_own() -> None:
    again = replayed(parked(RECORD), 50)
    assert parked_id("hpo", again) != parked_id("hpo", RECORD)


def test_a_replay_of_a_record_without_key_and_value_is_the_same_one() -> None:
    """Our producer writes an empty value where there is neither."""
    bare = replace(RECORD, key=None, value=None, headers=(("\0", b"1"),))
    again = replace(replayed(parked(bare), 50), value=b"")
    assert parked_id("cost", again) == parked_id("cost", bare)


def test_a_record_that_was_parked_before_says_where_it_came_from_last() -> None:
    again = parked(replace(parked(RECORD), topic="t.commands.jobs"))
    assert parked_fact(again, "topic") == "t.commands.jobs"


def test_the_same_record_parked_twice_has_one_id() -> None:
    assert parked_id("cost", RECORD) == parked_id("cost", replace(RECORD, timestamp_ms=7))
    assert parked_id("cost", RECORD) != parked_id("hpo", RECORD)
    assert parked_id("cost", RECORD) != parked_id("cost", replace(RECORD, offset=42))


def test_the_detail_is_bounded_and_takes_any_text() -> None:
    detail = parked_fact(parked(RECORD, "\ud800" * 5000), "detail")
    assert len(detail) == 1024


def test_of_a_record_too_large_to_be_kept_the_place_is_kept() -> None:
    record = parked(replace(RECORD, value=b"x" * MAX_KEPT_BYTES))
    assert int(parked_fact(record, "omitted")) > MAX_KEPT_BYTES
    assert parked_fact(record, "offset") == str(RECORD.offset)


@pytest.mark.parametrize(
    ("before", "num_bytes", "fits"),
    [
        (ParkedDay(NOW.date()), MAX_BYTES_A_DAY, True),
        (ParkedDay(NOW.date(), 1, 1), MAX_BYTES_A_DAY, False),
        (ParkedDay(NOW.date(), MAX_RECORDS_A_DAY), 1, False),
        (ParkedDay(date(2026, 2, 28), MAX_RECORDS_A_DAY, MAX_BYTES_A_DAY, 7), 1, True),
    ],
    ids=["the first", "too many bytes", "too many", "another day"],
)
def test_a_day_parks_so_many_records_and_bytes(
    before: ParkedDay, num_bytes: int, fits: bool
) -> None:
    after, is_parked = counted(before, NOW.date(), num_bytes)
    assert is_parked is fits
    assert after.num_dropped == (0 if fits else 1)
    assert after.num_bytes <= MAX_BYTES_A_DAY


def test_the_number_of_those_dropped_is_told_each_time_it_has_doubled() -> None:
    days = [ParkedDay(NOW.date(), num_dropped=number) for number in range(1, 20)]
    assert [day.num_dropped for day in days if day.is_noted] == [1, 2, 4, 8, 16]
