"""Levels of lines, in the shapes that people's programs write."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.metrics.core.log_levels import NONE, Level, highest, level_of

SHAPES = [
    # logging
    ("WARNING:root:low disk", Level.WARNING),
    ("INFO:my.module:epoch 1", Level.INFO),
    ("2026-11-22 10:00:00,123 - trainer - ERROR - lost", Level.ERROR),
    ("2026-11-22 10:00:00,123 DEBUG urllib3 GET /", Level.DEBUG),
    ("[2026-11-22 10:00:00,123][__main__][INFO] - hydra", Level.INFO),
    ("[INFO|trainer.py:1812] 2026-11-22 >> ***** Running *****", Level.INFO),
    ("[2026-11-22 10:00:00,000] [WARNING] [engine.py:1:init] deepspeed", Level.WARNING),
    ("CRITICAL  out of disk", Level.CRITICAL),
    # absl, glog, PyTorch in C++
    ("I1122 10:00:00.123456 140 main.py:1] started", Level.INFO),
    ("[W1122 10:00:00.5 ProcessGroupNCCL.cpp:1] timeout", Level.WARNING),
    ("[rank3]:[E1122 10:00:00.5 ProcessGroupNCCL.cpp:1] gone", Level.ERROR),
    ("F1122 10:00:00.123456 140 main.cc:1] no device", Level.CRITICAL),
    # structlog, with and without colours
    ("2026-11-22 10:00:00 [info     ] started  key=1", Level.INFO),
    ("\x1b[2m2026-11-22\x1b[0m [\x1b[33m\x1b[1mwarning  \x1b[0m] slow", Level.WARNING),
    # loguru
    ("2026-11-22 10:00:00.123 | SUCCESS  | __main__:f:1 - done", Level.INFO),
    ("2026-11-22 10:00:00.123 | ERROR    | __main__:f:1 - lost", Level.ERROR),
    # logfmt
    ('time="2026-11-22" level=warning msg="slow"', Level.WARNING),
    ("lvl=error step=3", Level.ERROR),
    # JSON
    ('{"event": "started", "level": "info"}', Level.INFO),
    ('{"levelname": "ERROR", "message": "INFO is not it"}', Level.ERROR),
    ('{"severity":"CRITICAL"}', Level.CRITICAL),
    ('{"level":40,"msg":"pino"}', Level.WARNING),
    ('{"level":999999,"msg":"pino"}', Level.CRITICAL),
    ('{"level":60}', Level.CRITICAL),
    ('{"level":59}', Level.ERROR),
    ('{"level":50}', Level.ERROR),
    ('{"level":30}', Level.INFO),
    ('{"level":20}', Level.DEBUG),
    ('{"level":10}', Level.DEBUG),
    ('{"level":9}', NONE),
    ('{"level":0}', NONE),
    ('{"level":"loud"}', NONE),
    ('  {"level":"warn"}', Level.WARNING),
    ("{" + " " * 1000 + '"level":"error"}', Level.ERROR),
    ("{" + " " * 3000 + '"level":"error"}', NONE),
    ('"level": "error"', NONE),
    (" " * 239 + "ERROR", NONE),
    (" " * 230 + " ERROR x", Level.ERROR),
    ("no level but an ERROR", Level.ERROR),
    ("V1122 10:00:00.5 a.cc:1] x", Level.DEBUG),
    ("Segmentation fault", Level.ERROR),
    ("<alert> hot", Level.CRITICAL),
    ("(notice) seen", Level.INFO),
    ("a line: error: text", NONE),
    ('{"loss": 0.3, "errors": 0}', NONE),
    # NCCL, command line programs, the platform itself
    ("node-0:12:34 [0] NCCL INFO Bootstrap : Using eth0", Level.INFO),
    ("node-0:12:34 [0] NCCL WARN Cuda failure", Level.WARNING),
    ("error: cannot open file", Level.ERROR),
    ("ld: warning: directory not found", Level.WARNING),
    ("drivetrain: warning: nothing is saved", Level.WARNING),
    ("fatal: not a git repository", Level.CRITICAL),
    # Python's warnings and tracebacks
    ("/x/train.py:12: UserWarning: lr_scheduler before optimizer", Level.WARNING),
    ("Traceback (most recent call last):", Level.ERROR),
    ("[rank0]: Traceback (most recent call last):", Level.ERROR),
    ("torch.OutOfMemoryError: CUDA out of memory", Level.ERROR),
    ("KeyError: 'loss'", Level.ERROR),
    ("AssertionError", Level.ERROR),
    ("Killed", Level.ERROR),
    # none
    ("step 100 loss 0.31", NONE),
    ('  File "train.py", line 3, in <module>', NONE),
    ("the error rate is 0.2 after 3 warnings", NONE),
    ("validation_error=0.3 information=4", NONE),
    ("https://host/ERROR/INFO.html", NONE),
    ("", NONE),
]


@pytest.mark.parametrize(("line", "level"), SHAPES)
def test_levels_are_recognised(line: str, level: int) -> None:
    assert level_of(line) == level


def test_the_highest_of_several() -> None:
    assert highest(["step 1", "INFO:root:x", "ERROR:root:y", "DEBUG:root:z"]) == Level.ERROR
    assert highest(["step 1"]) == NONE
    assert highest([]) == NONE


@given(st.lists(st.sampled_from([line for line, _ in SHAPES]), max_size=6))
def test_the_highest_is_that_of_each_line(lines: list[str]) -> None:
    assert highest(lines) == max(map(level_of, lines), default=NONE)


@pytest.mark.parametrize("text", ["[", "{", '{"level": ', "a: ", "\x1b[0m", "A.", "x:1: ", "-"])
def test_no_line_is_expensive(text: str) -> None:
    """Quadratic work on 8,192 characters would take minutes in a billion lines; here: a hang."""
    lines = [text * 8192 + "error"] * 300
    assert len(list(map(level_of, lines))) == 300


@pytest.mark.parametrize(
    ("lines", "level"),
    [
        (["DEBUG:root:x", "INFO:root:y"], Level.INFO),
        (["INFO:root:y", "DEBUG:root:x"], Level.INFO),
        (["DEBUG:root:x"], Level.DEBUG),
        (["WARNING:root:a", "ERROR:root:b", "CRITICAL:root:c", "INFO:root:d"], Level.CRITICAL),
        (["CRITICAL:root:c", "ERROR:root:b"], Level.CRITICAL),
        (["INFO:root:x", "E1122 10:00:00.5 a.cc:1] gone"], Level.ERROR),
        (["INFO:root:x", '{"level": 50}'], Level.ERROR),
        (["INFO:root:x", "no errors", "Killed"], Level.ERROR),
    ],
)
def test_the_highest_level_is_found_wherever_it_is(lines: list[str], level: int) -> None:
    assert highest(lines) == level


def test_a_level_has_its_word() -> None:
    assert [level.word for level in Level] == ["debug", "info", "warning", "error", "critical"]
