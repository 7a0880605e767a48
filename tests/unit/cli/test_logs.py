"""Logs as they are printed."""

import pytest

from drivetrain.cli.logs import _Printer


def test_a_log_that_is_piped_holds_nothing_that_a_terminal_obeys(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A file is shown on a terminal sooner or later."""
    line = {"attempt": 1, "rank": 0, "line": "\x1b]0;title\x07red\ttab"}
    _Printer(rank=0).print({"lines": [line]})
    assert capsys.readouterr().out == "\ufffd]0;title\ufffdred\ttab\n"
