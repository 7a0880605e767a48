"""JSON as requests may be written: what a lenient reader would guess at is refused."""

import json
import re

import pytest

from drivetrain_schemas.strict_json import MAX_DEPTH, MAX_VALUES, InvalidJson, check_number, loads


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b'{"a": 1, "b": [true, null, -0.5e3]}', {"a": 1, "b": [True, None, -500.0]}),
        ('"text of a str"', "text of a str"),
        ('"\\ud83d\\ude80 and \\\\u0000"', "\N{ROCKET} and \\u0000"),
        ('"' + "\N{ROCKET}" + '"', "\N{ROCKET}"),
        (b"9007199254740993", 9007199254740993),
        (b"[" * MAX_DEPTH + b"1" + b"]" * MAX_DEPTH, None),
    ],
    ids=["all kinds", "str", "a pair of surrogates", "raw", "a large number", "deep enough"],
)
def test_json_is_read(text: bytes | str, want: object) -> None:
    assert loads(text) == (want if want is not None else json.loads(text))


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"{} {}", "not JSON: Extra data"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        ("{}".encode("utf-16"), "not JSON"),
        (b'"\xed\xa0\x80"', "not JSON"),
        (b'{"a": 1, "a": 1}', "the key 'a' occurs twice"),
        (b'{"x": {"a": 1, "b": 2, "a": 3}}', "the key 'a' occurs twice"),
        (b"[NaN]", "NaN is not a JSON number"),
        (b"[Infinity]", "Infinity is not a JSON number"),
        (b"[-Infinity]", "-Infinity is not a JSON number"),
        (b"1e400", "too large for a number"),
        (b"9" * 65, "a number of 65 digits"),
        (b"0." + b"1" * 65, "a number of 67 digits"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested deeper than 32 levels"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "nested deeper than 32 levels"),
        (b"[" * 200_000, "nested deeper than 32 levels"),
        (b'"a\\u0000b"', "holds NUL"),
        (b'{"\\u0000": 1}', "holds NUL"),
        (b'["\\ud83d"]', "half a surrogate pair"),
        ('"\ud83d"', "half a surrogate pair"),
    ],
)
def test_what_is_refused_and_why(text: bytes | str, want: str) -> None:
    with pytest.raises(InvalidJson, match=re.escape(want)):
        loads(text)


@pytest.mark.parametrize(("value", "marks"), [(b"0,", 1), (b"[],", 2), (b"{},", 2)])
def test_a_document_of_more_values_than_any_true_one_is_refused_before_it_is_parsed(
    value: bytes, marks: int
) -> None:
    most = MAX_VALUES // marks
    check_number(value * most)
    with pytest.raises(InvalidJson, match="more than 1,000,000 values"):
        check_number(value * (most + 1))


def test_of_many_keys_the_one_that_occurs_twice_is_found_in_one_pass() -> None:
    pairs = ",".join(f'"{number}":0' for number in [*range(200_000), 199_999])
    with pytest.raises(InvalidJson, match="the key '199999' occurs twice"):
        loads("{" + pairs + "}")
