"""A parked record: its bytes as they were, and why and where in headers."""

from dataclasses import replace

import pytest

from services.runtime.bus import Record
from services.runtime.parking import (
    MAX_KEPT_BYTES,
    NotKept,
    Unfit,
    original,
    parked_fact,
    parked_headers,
    parked_id,
)

RECORD = Record(
    "t.events.jobs", 3, 41, 0, b"job_a", b"\xff not json", (("ce_id", b"1"), ("x", b""))
)


def parked(record: Record, detail: str = "not JSON") -> Record:
    headers = (*record.headers, *parked_headers("cost", Unfit(record, "not_json", detail)))
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


def test_the_original_comes_back_byte_by_byte() -> None:
    again = original(parked(RECORD))
    assert (again.topic, again.key, again.value) == ("t.events.jobs", RECORD.key, RECORD.value)
    assert again.headers[:-1] == RECORD.headers


def test_what_is_parked_again_after_a_replay_is_the_same_one() -> None:
    record, name = RECORD, parked_id("cost", RECORD)
    for offset in range(50, 53):
        again = original(parked(record))
        record = Record(again.topic, 3, offset, 0, again.key, again.value, again.headers)
        assert parked_fact(parked(record), "id") == name
        assert len(again.headers) == len(RECORD.headers) + 1
    forged = replace(RECORD, headers=(("x-parked-replay-of", b"<script>"),))
    assert parked_id("cost", forged) == name


def test_a_record_that_was_parked_before_says_where_it_came_from_last() -> None:
    again = parked(replace(parked(RECORD), topic="t.commands.jobs"))
    assert parked_fact(again, "topic") == "t.commands.jobs"


def test_the_same_record_parked_twice_has_one_id() -> None:
    assert parked_id("cost", RECORD) == parked_id("cost", replace(RECORD, value=b"other"))
    assert parked_id("cost", RECORD) != parked_id("hpo", RECORD)
    assert parked_id("cost", RECORD) != parked_id("cost", replace(RECORD, offset=42))


def test_the_detail_is_bounded_and_takes_any_text() -> None:
    detail = parked_fact(parked(RECORD, "\ud800" * 5000), "detail")
    assert len(detail) == 1024


def test_a_record_too_large_to_be_kept_is_not_put_back() -> None:
    record = parked(replace(RECORD, value=b"x" * MAX_KEPT_BYTES))
    assert int(parked_fact(record, "omitted")) > MAX_KEPT_BYTES
    with pytest.raises(NotKept, match=r"t\.events\.jobs/3/41"):
        original(record)
