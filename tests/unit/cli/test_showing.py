"""Amounts and bars."""

import io
import json
import sys

import pytest
import yaml

from drivetrain.cli import amounts, waiting
from drivetrain.cli.job_view import best_of, charged, rows_of
from drivetrain.cli.output import Format, is_lively, write_value
from drivetrain.cli.waiting import Status


@pytest.mark.parametrize(
    ("micro_usd", "want"),
    [
        (0, "$0.00"),
        (1, "$0.000001"),
        (12_500, "$0.0125"),
        (1_000_000, "$1.00"),
        (-2_340_000, "-$2.34"),
        (1_234_567_000_000, "$1,234,567.00"),
        (None, "-"),
    ],
)
def test_money_is_exact(micro_usd: int | None, want: str) -> None:
    assert amounts.money(micro_usd) == want


@pytest.mark.parametrize(
    ("seconds", "want"),
    [(0, "0 s"), (59.6, "1 min"), (61, "1 min 1 s"), (3600, "1 h"), (90_061, "1 d 1 h")],
)
def test_durations_have_two_units(seconds: float, want: str) -> None:
    assert amounts.duration(seconds) == want


@pytest.mark.parametrize(("num_bytes", "want"), [(999, "999 B"), (1500, "1.5 kB"), (None, "-")])
def test_sizes(num_bytes: int | None, want: str) -> None:
    assert amounts.size(num_bytes) == want


def test_a_bar_is_drawn_on_a_terminal_only() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert is_lively(Terminal(), {})
    assert not is_lively(Terminal(), {"NO_COLOR": "1"})
    assert not is_lively(Terminal(), {"TERM": "dumb"})
    assert not is_lively(io.StringIO(), {})


def test_a_bar_shows_texts_of_the_platform_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with waiting._open_display(frozenset()) as display:
        display.show(Status("running", 10, 400, eta_seconds=61, note="[bold]not markup\x1b"))
    drawn = terminal.getvalue()
    assert "step 10/400, 1 min 1 s left, [bold]not markup" in drawn


def test_a_job_shows_how_many_samples_were_dropped() -> None:
    whole = {"job_id": "job_x", "state": "running", "num_dropped_samples": 0}
    assert "dropped" not in dict(rows_of(whole, "page"))
    lossy = dict(rows_of({**whole, "num_dropped_samples": 4000}, "page"))
    assert lossy["dropped"] == "4,000 samples; the buffer was full"


def test_a_job_shows_how_much_of_its_output_was_left_out() -> None:
    whole = {"job_id": "job_x", "state": "running", "num_dropped_log_bytes": 0}
    assert "log" not in dict(rows_of(whole, "page"))
    lossy = dict(rows_of({**whole, "num_dropped_log_bytes": 4000}, "page"))
    assert lossy["log"] == "4,000 bytes left out; more than logs.kib_per_second"


@pytest.mark.parametrize(
    ("saved", "want"),
    [
        ({"is_saved": True}, "accuracy 0.93 at step 230"),
        ({"is_saved": False, "saved": None}, "accuracy 0.93 at step 230 (not saved)"),
        (
            {"is_saved": False, "saved": {"value": 0.92, "step": 220}},
            "accuracy 0.93 at step 230 (not saved; best saved: 0.92 at step 220)",
        ),
    ],
)
def test_the_best_value_says_whether_its_weights_were_saved(saved: dict, want: str) -> None:
    assert best_of({"best": {"name": "accuracy", "value": 0.93, "step": 230, **saved}}) == want


@pytest.mark.parametrize("form", [Format.JSON, Format.YAML])
def test_what_cannot_be_seen_is_escaped(form: Format, capsys) -> None:
    value = {"lo\u200bss": "right\u200fto left \x7f \u2028 \U000e0041", "ümläut": 1}
    write_value(value, form)
    text = capsys.readouterr().out
    assert all(line.isprintable() for line in text.splitlines())
    assert (json.loads if form is Format.JSON else yaml.safe_load)(text) == value
    write_value({"ümläut": "👩"}, form)
    assert "ümläut" in capsys.readouterr().out


def test_a_job_shows_its_warnings_and_its_seed() -> None:
    job = {"job_id": "job_x", "state": "succeeded", "charged_micro_usd": 0}
    warned = {"attempt": 1, "warning": "no_resume", "detail": "no checkpoint will be written"}
    seed = {"number": 42, "by_script": ["numpy"]}
    note = {"attempt": 1, "warning": "begins_with", "detail": "attempt 2 begins with 2 files"}
    shown = dict(rows_of({**job, "warnings": [warned, note], "result": {"seed": seed}}, ""))
    assert shown["warning"] == "no checkpoint will be written"
    assert shown["files"] == "attempt 2 begins with 2 files"
    assert shown["seed"] == "42; seeded by the script itself: numpy"
    assert dict(rows_of({**job, "result": {}}, ""))["seed"].startswith("unknown")
    assert "seed" not in dict(rows_of({**job, "state": "running"}, ""))


def test_a_job_that_runs_and_is_not_charged_yet_is_not_shown_as_free() -> None:
    assert charged({"charged_micro_usd": 0, "finished_at": None}) == "-"
    assert charged({"charged_micro_usd": 57, "finished_at": None}) == "$0.000057"
    assert charged({"charged_micro_usd": 0, "finished_at": "2026-01-01T00:00:00Z"}) == "$0.00"
