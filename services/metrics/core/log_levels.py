"""The level of a line of output, from the shapes that logging libraries write.

Recognised: logging, absl, glog and PyTorch's C++, structlog, loguru, logfmt, JSON, NCCL, Python's
warnings, and the first and last line of a traceback. A line without a level, such as one inside a
traceback, has none. Only the beginning of a line is looked at, so the cost is bounded.
"""

import re
from collections.abc import Sequence
from enum import IntEnum


class Level(IntEnum):
    DEBUG = 10
    INFO = 20
    WARNING = 30
    ERROR = 40
    CRITICAL = 50

    @property
    def word(self) -> str:
        return self.name.lower()


NONE = 0  # less than every level
_HEAD_CHARACTERS = 240
_JSON_CHARACTERS = 2048
_WORDS = {
    "trace": Level.DEBUG,
    "debug": Level.DEBUG,
    "info": Level.INFO,
    "notice": Level.INFO,
    "success": Level.INFO,
    "warn": Level.WARNING,
    "warning": Level.WARNING,
    "err": Level.ERROR,
    "error": Level.ERROR,
    "severe": Level.ERROR,
    "exception": Level.ERROR,
    "crit": Level.CRITICAL,
    "critical": Level.CRITICAL,
    "fatal": Level.CRITICAL,
    "alert": Level.CRITICAL,
    "emergency": Level.CRITICAL,
    "panic": Level.CRITICAL,
}
_LETTERS = {
    "D": Level.DEBUG,
    "V": Level.DEBUG,
    "I": Level.INFO,
    "W": Level.WARNING,
    "E": Level.ERROR,
    "F": Level.CRITICAL,
}
_ANY = "|".join(sorted(_WORDS, key=len, reverse=True))
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# A line with none of these has no level: most lines of a training are told by this alone.
_STEMS = ("info", "warn", "err", "debug", "level", "trac", "crit", "fatal", "exception", "notice")
_RARE_STEMS = ("success", "sever", "lvl", "alert", "emergency", "panic", "kill", "fault")
_HIGH_STEMS = (
    *("warn", "err", "crit", "fatal", "exception", "trac"),
    *("sever", "alert", "emergency", "panic", "kill", "fault"),
)
# W1122 10:00:00 and "level": 40
_HIGH_NUMBER = re.compile(r'[wef]\d{4} \d\d:|(?:level|lvl|severity|levelname)"\s*:\s*\d')
_RANK = r"(?:\[rank\d+\]:\s*)?"
# {"level": "info"}, {"levelname": "INFO"}, {"severity": 40}
_JSON = re.compile(
    r'"(?:level|levelname|log_level|log\.level|lvl|severity)"\s*:\s*(?:"(\w+)"|(\d+))',
    re.IGNORECASE,
)
# [I1122 10:00:00.5 file.cpp:1] and I1122 10:00:00.5 1 file.cc:1]
_LETTER = re.compile(rf"{_RANK}\[?([DVIWEF])\d{{4}} \d\d:\d\d:\d\d")
_FIELD = re.compile(rf'\b(?:level|lvl|severity)=["\']?({_ANY})\b', re.IGNORECASE)
# [info     ], (warning), <error>, | INFO     |
_ENCLOSED = re.compile(rf"[\[(<|]\s*({_ANY})\s*[\])>|]", re.IGNORECASE)
# error: text, and after one name of a program: drivetrain: warning: text
_LEADING = re.compile(rf"{_RANK}(?:[\w./-]+: )?({_ANY})(?: \w+)?: ", re.IGNORECASE)
# path/file.py:12: UserWarning: text
_WARNED = re.compile(r"\S+:\d+: \w*Warning: ")
_RAISED = re.compile(
    rf"{_RANK}(?:Traceback \(most recent call last\)"
    r"|(?:\w+\.)*[A-Z]\w*(?:Error|Exception)(?::|$)|Killed$|Segmentation fault)"
)
# INFO:root:text, 2026-11-22 10:00:00,5 - name - INFO - text, [INFO|trainer.py:1], NCCL WARN text
_CAPITALS = re.compile(rf"(?<![\w=/.-])({_ANY.upper()})(?![\w=/.]|-\w)")


def level_of(line: str) -> int:
    """A `Level`, or `NONE`."""
    if found := _LETTER.match(line):
        return _LETTERS[found[1]]
    begin = line[:_HEAD_CHARACTERS]
    is_json = begin.lstrip().startswith("{")
    if is_json:
        begin = line[:_JSON_CHARACTERS]
    if not _has_hint(begin.lower()):
        return NONE
    if is_json and (found := _JSON.search(begin)):
        return _of_json(found[1], found[2])
    head = _COLOUR.sub("", begin[:_HEAD_CHARACTERS])
    if _RAISED.match(head):
        return Level.ERROR
    if _WARNED.match(head):
        return Level.WARNING
    for pattern, is_at_start in ((_FIELD, 0), (_ENCLOSED, 0), (_CAPITALS, 0), (_LEADING, 1)):
        if found := pattern.match(head) if is_at_start else pattern.search(head):
            return _WORDS[found[1].lower()]
    return NONE


def highest(lines: Sequence[str]) -> int:
    """The highest level among the lines; most have no line above INFO, and are told at once."""
    has_more = _may_exceed_info("\n".join(lines).lower())
    found = NONE
    for line in lines:
        if found >= Level.INFO and not (has_more and _may_exceed_info(line.lower())):
            continue
        found = max(found, level_of(line))
        if found == Level.CRITICAL or (found == Level.INFO and not has_more):
            break
    return found


def _may_exceed_info(text: str) -> bool:
    """Of text in lower case."""
    return any(stem in text for stem in _HIGH_STEMS) or _HIGH_NUMBER.search(text) is not None


def _has_hint(text: str) -> bool:
    return any(stem in text for stem in _STEMS) or any(stem in text for stem in _RARE_STEMS)


def _of_json(word: str | None, number: str | None) -> int:
    if word is not None:
        return _WORDS.get(word.lower(), NONE)
    # pino and bunyan: 10 is trace, 30 is info, 60 is fatal.
    at = min(int(number or 0), 60) // 10
    return (NONE, 10, 10, 20, 30, 40, 50)[at]
