import json
from base64 import b64decode
from collections.abc import Callable
from typing import Any

import pytest

from drivetrain_schemas.units import short_money
from services.gateway.core import bytes_shown, formats
from services.gateway.core.storable import storable_text


@pytest.mark.parametrize(
    ("write", "amount", "text"),
    [
        (formats.size, (0,), "0 B"),
        (formats.size, (999,), "999 B"),
        (formats.size, (1000,), "1.0 kB"),
        (formats.size, (1_000_000,), "1.0 MB"),
        (formats.size, (10**15,), "1.0 PB"),
        (formats.size, (10**19,), "10000.0 PB"),
        (formats.size, (1_234_567,), "1.2 MB"),
        (short_money, (0,), "$0.00"),
        (short_money, (133,), "$0.000133"),
        (short_money, (9_990,), "$0.00999"),
        (short_money, (10_000,), "$0.01"),
        (short_money, (999_900,), "$0.9999"),
        (short_money, (1_000_000,), "$1.00"),
        (short_money, (-133,), "-$0.000133"),
        (short_money, (15_230,), "$0.0152"),
        (short_money, (-1_234_560_000,), "-$1,234.56"),
        (formats.duration, (0.42,), "0.4 s"),
        (formats.duration, (0,), "0.0 s"),
        (formats.duration, (9.94,), "9.9 s"),
        (formats.duration, (10,), "10 s"),
        (formats.duration, (59,), "59 s"),
        (formats.duration, (60,), "1 min"),
        (formats.duration, (63,), "1 min 3 s"),
        (formats.duration, (3_603,), "1 h"),
        (formats.duration, (86_399,), "23 h 59 min"),
        (formats.duration, (86_400,), "1 d"),
        (formats.duration, (3600,), "1 h"),
        (formats.duration, (90_000,), "1 d 1 h"),
        (formats.duration, (-1,), "0 s"),
        (formats.number, (0.98123,), "0.9812"),
        (formats.number, (3.0,), "3"),
        (formats.number, (0.0,), "0"),
        (formats.number, (-999_999.0,), "-999999"),
        (formats.number, (1e6,), "1e6"),
        (formats.number, (float("inf"),), "inf"),
        (formats.number, (float("-inf"),), "-inf"),
        (formats.number, (5e-5,), "5e-5"),
        (formats.number, (-1.5e-10,), "-1.5e-10"),
        (formats.number, (2.5e20,), "2.5e20"),
        (formats.number, (float("nan"),), "nan"),
        (
            formats.count,
            (
                1,
                "retry",
                "retries",
            ),
            "1 retry",
        ),
        (
            formats.count,
            (
                0,
                "slot",
            ),
            "0 slots",
        ),
        (
            formats.count,
            (
                2,
                "slot",
            ),
            "2 slots",
        ),
        (
            formats.count,
            (
                2000,
                "retry",
                "retries",
            ),
            "2,000 retries",
        ),
        (formats.ranges, ((0, 1, 2, 5),), "0-2, 5"),
        (formats.ranges, ((5, 2, 2, 0, 1, 6),), "0-2, 5-6"),
        (formats.ranges, ((3,),), "3"),
        (formats.ranges, ((),), ""),
    ],
)
def test_amounts_read_well(write: Callable[..., str], amount: tuple[Any, ...], text: str) -> None:
    assert write(*amount) == text


def test_printable_bytes_are_shown_as_text_and_others_as_base64() -> None:
    shown = bytes_shown.show('{"name": "é"}'.encode())
    assert shown is not None
    assert shown.text == '{"name": "é"}'
    binary = bytes_shown.show(b"\xff\xfe\x00")
    assert binary is not None
    assert (binary.text, binary.base64) == (None, "//4A")
    assert bytes_shown.show(None) is None
    empty = bytes_shown.show(b"")
    assert empty is not None
    assert (empty.text, empty.size_bytes) == ("", 0)


def test_a_cut_does_not_split_a_character() -> None:
    shown = bytes_shown.show("ééé".encode(), limit=3)
    assert shown is not None
    assert (shown.text, shown.size_bytes, shown.is_cut) == ("é", 6, True)


def test_terminal_codes_are_not_shown_as_text() -> None:
    shown = bytes_shown.show(b"\x1b[2Jgone")
    assert shown is not None
    assert shown.text is None


@pytest.mark.parametrize(
    ("raw", "limit", "text", "is_cut"),
    [
        (b"abc", 3, "abc", False),
        (b"abcd", 3, "abc", True),
        (b"ab\xf0\x9f\x98\x80", 5, "ab", True),
        (b"ab\xf0\x9f\x98\x80", 6, "ab\U0001f600", False),
        (b"ab\xc3", 3, None, False),
        (b"a\xff\xff\xff\xff", 4, "a", True),
        (b"a\xff\xff\xff\xff", 5, None, False),
        (b"a\xff\xff\xff\xff\xff", 5, None, True),
        (b"a\tb\r\n", 9, "a\tb\r\n", False),
    ],
)
def test_bytes_are_cut_at_the_limit_and_no_character_is_split(
    raw: bytes, limit: int, text: str | None, is_cut: bool
) -> None:
    shown = bytes_shown.show(raw, limit)
    assert shown is not None
    assert (shown.text, shown.is_cut, shown.size_bytes) == (text, is_cut, len(raw))
    assert b64decode(shown.base64) == raw[:limit]


@pytest.mark.parametrize(
    "raw",
    [b"\xff\xfe", b"plain", b'{"a":  1}', b"{", b""],
    ids=["binary", "text", "JSON", "a part", "nothing"],
)
def test_bytes_without_secrets_stay_as_they_are(raw: bytes) -> None:
    assert bytes_shown.without_secrets(raw) == raw


def test_secrets_are_hidden_in_documents_and_in_texts() -> None:
    document = bytes_shown.without_secrets(b'{"environment": {"API_TOKEN": "hush-hush"}, "a": 1}')
    assert json.loads(document)["a"] == 1
    assert b"hush-hush" not in document
    text = bytes_shown.without_secrets(b"see https://me:hush-hush@host/x for more")
    assert text.startswith(b"see https://")
    assert b"hush-hush" not in text


def test_a_zero_byte_is_stored_as_its_sign() -> None:
    assert storable_text("a\0b\x01") == "a\u2400b\x01"
