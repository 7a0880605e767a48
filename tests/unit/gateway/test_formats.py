import pytest

from services.gateway.core import bytes_shown, formats


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (formats.size(999), "999 B"),
        (formats.size(1_234_567), "1.2 MB"),
        (formats.money(0), "$0.00"),
        (formats.money(133), "$0.000133"),
        (formats.money(15_230), "$0.0152"),
        (formats.money(-1_234_560_000), "-$1,234.56"),
        (formats.duration(0.42), "0.4 s"),
        (formats.duration(63), "1 min 3 s"),
        (formats.duration(3600), "1 h"),
        (formats.duration(90_000), "1 d 1 h"),
        (formats.duration(-1), "0 s"),
        (formats.number(0.98123), "0.9812"),
        (formats.number(3.0), "3"),
        (formats.number(5e-5), "5e-5"),
        (formats.number(-1.5e-10), "-1.5e-10"),
        (formats.number(2.5e20), "2.5e20"),
        (formats.number(float("nan")), "nan"),
        (formats.count(1, "retry", "retries"), "1 retry"),
        (formats.count(2000, "retry", "retries"), "2,000 retries"),
        (formats.ranges((0, 1, 2, 5)), "0-2, 5"),
    ],
)
def test_amounts_read_well(text: str, want: str) -> None:
    assert text == want


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
