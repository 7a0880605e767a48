"""Lines over a socket with a long path."""

import pytest

from drivetrain import control


def test_lines_are_whole_for_any_chunks() -> None:
    lines = control.Lines()
    assert lines.feed(b'{"a":1}\n{"b"') == [b'{"a":1}']
    assert lines.feed(b":2}\n") == [b'{"b":2}']


def test_an_endless_line_is_refused() -> None:
    with pytest.raises(ValueError, match="more than"):
        control.Lines().feed(b"x" * (control.MAX_LINE_BYTES + 1))
