"""The kinds of malformed, foreign and hostile records: `KINDS`, name -> function.

Each takes a seeded generator and a topic and returns one record. Kinds in `REFUSED` can be no event
on any topic, so each of their records must be parked.
"""

import json
from collections.abc import Callable
from random import Random
from typing import Any

from tests.fuzz.records import FuzzRecord, draft, type_of_another_topic

Kind = Callable[[Random, str], FuzzRecord]

KINDS: dict[str, Kind] = {}
REFUSED: set[str] = set()


def kind(*, is_refused: bool = False) -> Callable[[Kind], Kind]:
    def register(function: Kind) -> Kind:
        name = function.__name__
        KINDS[name] = function
        if is_refused:
            REFUSED.add(name)
        return function

    return register


def _text(random: Random, topic: str) -> tuple[str, Callable[[str], FuzzRecord]]:
    """The JSON text of a valid event, and what makes a record of another text."""
    event = draft(random, topic)
    text = json.dumps(event.payload)
    return text, lambda changed: event.record(changed.encode("utf-8", "surrogatepass"))


def _with_raw_field(random: Random, topic: str, raw: bytes) -> FuzzRecord:
    """The value of the first field replaced by these bytes."""
    event = draft(random, topic)
    name = next(iter(event.payload))
    event.payload[name] = "RAW"
    return event.record(json.dumps(event.payload).encode().replace(b'"RAW"', raw, 1))


# -- values ------------------------------------------------------------------------------------


@kind(is_refused=True)
def random_bytes(random: Random, topic: str) -> FuzzRecord:
    return draft(random, topic).record(b"\xfe" + random.randbytes(random.randint(1, 4000)))


@kind(is_refused=True)
def empty_value(random: Random, topic: str) -> FuzzRecord:
    return draft(random, topic).record(b"")


@kind(is_refused=True)
def tombstone(random: Random, topic: str) -> FuzzRecord:
    record = draft(random, topic).record()
    record.value = None
    return record


@kind()
def a_json_scalar(random: Random, topic: str) -> FuzzRecord:
    return draft(random, topic).record(random.choice([b"null", b"true", b"7", b'"text"', b"[]"]))


@kind(is_refused=True)
def truncated_json(random: Random, topic: str) -> FuzzRecord:
    text, record = _text(random, topic)
    return record(text[: random.randint(1, len(text) - 1)])


@kind(is_refused=True)
def text_after_the_json(random: Random, topic: str) -> FuzzRecord:
    text, record = _text(random, topic)
    return record(text + random.choice(["}", "]", ",", "x", text]))


@kind()
def duplicate_key(random: Random, topic: str) -> FuzzRecord:
    text, record = _text(random, topic)
    return record(text[:-1] + ', "job_id": "job_a", "job_id": "job_b"}')


@kind(is_refused=True)
def not_a_number(random: Random, topic: str) -> FuzzRecord:
    text, record = _text(random, topic)
    return record(text[:-1] + f', "later": {random.choice(["NaN", "Infinity", "-Infinity"])}}}')


@kind()
def number_out_of_range(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    text = json.dumps(event.payload)
    field = random.choice(list(event.payload))
    wrong = random.choice(["1e999", "-1e999", "1" * 5_000, "-" + "9" * 400, "0." + "3" * 5_000])
    return event.record(text.replace(f'"{field}":', f'"{field}": {wrong}, "later":', 1).encode())


def _nested(random: Random, topic: str, opening: str, closing: str, depth: int) -> FuzzRecord:
    value = (opening * depth + "1" + closing * depth).encode()
    if random.random() < 0.5:
        return draft(random, topic).record(value)
    return _with_raw_field(random, topic, value)


@kind(is_refused=True)
def deeply_nested_lists(random: Random, topic: str) -> FuzzRecord:
    return _nested(random, topic, "[", "]", random.choice([500, 2_000, 60_000]))


@kind(is_refused=True)
def deeply_nested_objects(random: Random, topic: str) -> FuzzRecord:
    return _nested(random, topic, '{"a":', "}", random.choice([500, 2_000, 30_000]))


@kind(is_refused=True)
def broken_utf8_in_a_text(random: Random, topic: str) -> FuzzRecord:
    return _with_raw_field(random, topic, b'"\xc3\x28\xff"')


@kind(is_refused=True)
def utf16(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    return event.record(json.dumps(event.payload).encode("utf-16"))


@kind(is_refused=True)
def byte_order_mark(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    return event.record(b"\xef\xbb\xbf" + json.dumps(event.payload).encode())


def _with_text(random: Random, topic: str, wrong: str) -> FuzzRecord:
    """One of the texts of the payload replaced, wherever it lies."""
    event = draft(random, topic)
    texts: list[tuple[Any, Any]] = []
    _collect_texts(event.payload, texts)
    container, key = random.choice(texts)
    container[key] = wrong
    return event.record()


def _collect_texts(value: Any, found: list[tuple[Any, Any]]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, child in list(items):
        if isinstance(child, str):
            found.append((value, key))
        elif isinstance(child, dict | list):
            _collect_texts(child, found)


@kind()
def nul_in_a_text(random: Random, topic: str) -> FuzzRecord:
    return _with_text(random, topic, "a\0b")


@kind()
def half_a_surrogate_pair(random: Random, topic: str) -> FuzzRecord:
    return _with_text(random, topic, "a\ud800b")


@kind()
def terminal_escapes_in_a_text(random: Random, topic: str) -> FuzzRecord:
    return _with_text(random, topic, "\x1b]0;title\x07\x1b[2J\u202e")


@kind()
def markup_in_a_text(random: Random, topic: str) -> FuzzRecord:
    return _with_text(random, topic, "<script>alert(1)</script>'\"; drop table jobs; --")


@kind()
def very_long_text(random: Random, topic: str) -> FuzzRecord:
    return _with_text(random, topic, random.choice("a\u00e9\U0001f600") * 30_000)


@kind(is_refused=True)
def value_of_300_kib(random: Random, topic: str) -> FuzzRecord:
    text, record = _text(random, topic)
    return record(text[:-1] + ', "later": "' + "x" * 300 * 1024 + '"}')


@kind(is_refused=True)
def value_of_900_kb(random: Random, topic: str) -> FuzzRecord:
    return draft(random, topic).record(random.randbytes(1000) * 900)


@kind()
def field_of_another_type(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    wrong: list[Any] = [None, True, -1, 0, 2**53 + 1, 2**64, 0.5, "", "x", [], [1], {}, {"a": 1}]
    event.payload[random.choice(list(event.payload))] = random.choice(wrong)
    return event.record()


@kind()
def missing_field(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    del event.payload[random.choice(list(event.payload))]
    return event.record()


@kind()
def unknown_fields(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    event.payload |= {f"later_{n}": n for n in range(random.randint(1, 2_000))}
    return event.record()


@kind()
def ids_of_nothing(random: Random, topic: str) -> FuzzRecord:
    """A valid event about a job or run that does not exist, with a fence from the far future."""
    event = draft(random, topic)
    body = "".join(random.choices("abcdefghijklmnopqrstuvwxyz234567", k=26))
    for name, text in {"job_id": f"job_{body}", "run_id": f"run_{body}_1"}.items():
        if name in event.payload:
            event.payload[name] = text
    if "fence" in event.payload:
        event.payload["fence"] = 2**63 - 1
    event.key = event.payload.get("run_id", event.key)
    return event.record()


@kind()
def the_same_event_again(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    event.headers["ce_id"] = f"fuzz-repeated-{random.randint(1, 3)}"
    return event.record()


@kind(is_refused=True)
def event_of_another_topic(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic, type_of_another_topic(random, topic))
    return event.record()


# -- attributes and headers --------------------------------------------------------------------


@kind(is_refused=True)
def missing_attribute(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    del event.headers[random.choice(["ce_id", "ce_source", "ce_type", "ce_specversion"])]
    return event.record()


@kind(is_refused=True)
def no_headers(random: Random, topic: str) -> FuzzRecord:
    record = draft(random, topic).record()
    record.headers = []
    return record


@kind(is_refused=True)
def attribute_given_twice(random: Random, topic: str) -> FuzzRecord:
    record = draft(random, topic).record()
    record.headers.append((random.choice(["ce_id", "CE_ID", "ce_source"]), b"another"))
    return record


@kind(is_refused=True)
def unknown_type(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    event.headers["ce_type"] = random.choice(["job.polish", "JOB.SUBMIT", "x" * 512, "1"])
    del event.headers["ce_dataschema"]
    return event.record()


@kind(is_refused=True)
def unknown_version(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    prefix = event.headers["ce_dataschema"].rpartition(":")[0]
    event.headers["ce_dataschema"] = f"{prefix}:{random.choice(['0', '99', '999999'])}"
    return event.record()


@kind(is_refused=True)
def broken_data_schema(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    event.headers["ce_dataschema"] = random.choice(["x", "urn:drivetrain:schema::1", "http://x/1"])
    return event.record()


@kind(is_refused=True)
def another_spec_version(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    event.headers["ce_specversion"] = random.choice(["0.3", "2.0", "1", "1.0.0"])
    return event.record()


@kind(is_refused=True)
def another_content_type(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    event.headers["content-type"] = random.choice(
        ["text/csv", "application/avro", "application/cloudevents+avro",
         "application/json; charset=latin-1"]
    )  # fmt: skip
    return event.record()


@kind(is_refused=True)
def control_characters_in_an_attribute(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    event.headers[random.choice(["ce_id", "ce_source"])] = random.choice(["a\0b", "a\nb", "\x7f"])
    return event.record()


@kind()
def longest_multibyte_attributes(random: Random, topic: str) -> FuzzRecord:
    """512 characters of four bytes each: the largest id and source that the contract allows."""
    event = draft(random, topic)
    event.headers["ce_id"] = "".join(chr(random.randint(0x10000, 0x1F000)) for _ in range(512))
    event.headers["ce_source"] = "\U0001f600" * 512
    return event.record()


@kind(is_refused=True)
def attribute_over_its_limit(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    event.headers[random.choice(["ce_id", "ce_source"])] = "x" * random.choice([513, 100_000])
    return event.record()


@kind()
def unusual_time(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    event.headers["ce_time"] = random.choice(
        ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00",
         "yesterday", "2026-02-30T00:00:00Z", "2026-01-01T00:00:60Z", "2026-01-01"]
    )  # fmt: skip
    return event.record()


@kind()
def unusual_sequence_or_trace(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    name, text = random.choice(
        [("ce_sequence", "-1"), ("ce_sequence", "9" * 400), ("ce_sequence", "\u0663"),
         ("ce_traceparent", "00-0-0-00"), ("ce_traceparent", "x"), ("ce_tenantid", "-"),
         ("ce_tenantid", "another"), ("ce_tenantid", "../../etc")]
    )  # fmt: skip
    event.headers[name] = text
    return event.record()


@kind()
def header_without_value(random: Random, topic: str) -> FuzzRecord:
    record = draft(random, topic).record()
    record.headers.append((random.choice(["x-null", "ce_subject", "content-type", "ce_id"]), None))
    return record


@kind()
def binary_header(random: Random, topic: str) -> FuzzRecord:
    record = draft(random, topic).record()
    name = random.choice(["x-binary", "ce_extension", "ce_subject"])
    record.headers.append((name, random.randbytes(200)))
    return record


@kind()
def a_thousand_headers(random: Random, topic: str) -> FuzzRecord:
    record = draft(random, topic).record()
    record.headers += [(f"x-{n}", b"v" * 20) for n in range(1_000)]
    return record


@kind()
def large_header_value(random: Random, topic: str) -> FuzzRecord:
    record = draft(random, topic).record()
    record.headers.append(("x-large", b"v" * 700_000))
    return record


@kind()
def control_characters_in_a_header_name(random: Random, topic: str) -> FuzzRecord:
    record = draft(random, topic).record()
    record.headers.append((random.choice(["\0" * 64, "a\x1b[2Jb", "\n", ""]), b"v"))
    return record


@kind()
def huge_header_name_of_nul(random: Random, topic: str) -> FuzzRecord:
    """Each NUL takes one byte on the topic, and three once it is replaced by U+FFFD."""
    record = draft(random, topic).record(b"not JSON")
    record.headers.append(("\0" * random.choice([100_000, 900_000]), b"v"))
    return record


@kind()
def forged_headers_of_parking(random: Random, topic: str) -> FuzzRecord:
    record = draft(random, topic).record(b"not JSON")
    record.headers += [
        ("x-parked-id", b"parked_" + b"a" * 26),
        ("x-parked-replay-of", b"parked_" + b"a" * 26),
        ("x-parked-topic", b"drivetrain.events.charges"),
        ("x-parked-service", b"cost"),
        ("x-parked-offset", b"-1"),
        ("x-undecodable", b"1"),
    ]
    return record


# -- structured mode ---------------------------------------------------------------------------


def _structured(random: Random, topic: str, **changes: Any) -> FuzzRecord:
    event = draft(random, topic)
    document = {
        name.removeprefix("ce_"): text
        for name, text in event.headers.items()
        if name.startswith("ce_")
    }
    document |= {"datacontenttype": "application/json", "data": event.payload, **changes}
    event.headers = {"content-type": "application/cloudevents+json"}
    return event.record(json.dumps(document).encode())


@kind()
def structured_event(random: Random, topic: str) -> FuzzRecord:
    return _structured(random, topic)


@kind(is_refused=True)
def structured_event_with_wrong_attributes(random: Random, topic: str) -> FuzzRecord:
    wrong: dict[str, Any] = {"id": random.choice([[], {}, None, ""]), "type": "job.submit"}
    return _structured(random, topic, **wrong)


@kind(is_refused=True)
def structured_event_with_broken_base64(random: Random, topic: str) -> FuzzRecord:
    return _structured(random, topic, data=None, data_base64="not base64!")


@kind(is_refused=True)
def structured_event_sent_as_json(random: Random, topic: str) -> FuzzRecord:
    record = _structured(random, topic)
    record.headers = [("content-type", b"application/json")]
    return record


@kind(is_refused=True)
def batch_of_events(random: Random, topic: str) -> FuzzRecord:
    record = _structured(random, topic)
    record.headers = [("content-type", b"application/cloudevents-batch+json")]
    record.value = b"[" + (record.value or b"") + b"]"
    return record


# -- keys, partitions, timestamps --------------------------------------------------------------


@kind()
def wrong_key(random: Random, topic: str) -> FuzzRecord:
    record = draft(random, topic).record()
    record.key = random.choice([None, b"", b"\xff\xfe", b"k", b"job_" + b"b" * 26, b"k" * 100_000])
    return record


@kind()
def another_partition(random: Random, topic: str) -> FuzzRecord:
    record = draft(random, topic).record()
    record.partition = random.randint(0, 3)
    return record


@kind()
def unusual_timestamp(random: Random, topic: str) -> FuzzRecord:
    event = draft(random, topic)
    del event.headers["ce_time"]
    record = event.record()
    record.timestamp_ms = random.choice([0, 1, 253402300800000, 2**62])
    return record
