"""Structured logs: one JSON line per state change, the event a constant phrase, the data as keys.

Secrets are masked by key and, in texts (including tracebacks), as a password in a URL, after a word
like `password=`, or as a bearer token.
"""

import logging
import math
import re
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any

import structlog

_SECRET = r"password|passwd|secret|token|authorization|cookie|api_?key"
_SECRET_KEY = re.compile(_SECRET, re.I)
_IN_TEXT = (
    re.compile(r"(?P<head>[a-z][a-z0-9+.-]*://[^/\s:@]*:)[^\s/]+(?P<tail>@)", re.I),
    re.compile(r"(?P<head>\bBearer\s+)[^\s'\",]+(?P<tail>)", re.I),
    re.compile(
        rf"(?P<head>[\w-]*(?:{_SECRET})[\w-]*['\"]?\s*[=:]\s*['\"]?)"
        r"(?!Bearer\s)[^\s'\",;&)]+(?P<tail>)",
        re.I,
    ),
)
# Every text in which one of these finds something holds one of these words; most texts hold none.
_MAY_HOLD = re.compile(rf"://|Bearer|{_SECRET}", re.I)
MASK = "******"
REPEAT_SECONDS = 60.0


class OncePerPeriod(logging.Filter):
    """Passes one line per template and period, with the number of lines left out.

    aiokafka writes "Unable connect" at every attempt: 19,000 times while a broker restarted.
    """

    def __init__(self, seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._seconds = seconds
        self._monotonic = monotonic
        # By logger and template: when a line was written last, and how many were left out since.
        self._written: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        template = (record.name, str(record.msg)[:200])
        now = self._monotonic()
        written_at, num_left_out = self._written.get(template, (-math.inf, 0))
        if now - written_at < self._seconds:
            self._written[template] = written_at, num_left_out + 1
            return False
        if len(self._written) >= _MOST_TEMPLATES:
            self._written.clear()
        self._written[template] = now, 0
        if num_left_out:
            record.msg = f"{record.getMessage()} (and {num_left_out} more like this)"
            record.args = ()
        return True


_MOST_TEMPLATES = 1000


def configure(service: str, level: str = "info") -> None:
    """Set up structlog and the standard library's logging (aiokafka, uvicorn) alike."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
        redact,
    ]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer()],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=False,
    )
    structlog.contextvars.bind_contextvars(service=service)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[structlog.stdlib.add_logger_name, *shared],
            processor=structlog.processors.JSONRenderer(),
        )
    )
    repeats = OncePerPeriod(REPEAT_SECONDS)
    handler.addFilter(lambda line: not line.name.startswith("aiokafka") or repeats.filter(line))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    # It warns of SASL without TLS at every connection it makes.
    logging.getLogger("aiokafka.conn").setLevel(logging.ERROR)


def redact(_logger: object, _method: str, line: MutableMapping[str, Any]) -> Any:
    """Mask secrets at any depth."""
    return {key: _masked(key, value) for key, value in line.items()}


def _masked(key: str, value: Any) -> Any:
    if _SECRET_KEY.search(key) and value is not None:
        return MASK
    if isinstance(value, str):
        if _MAY_HOLD.search(value) is None:
            return value
        for pattern in _IN_TEXT:
            value = pattern.sub(rf"\g<head>{MASK}\g<tail>", value)
        return value
    if isinstance(value, dict):
        return {name: _masked(str(name), inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(key, inner) for inner in value]
    return value


def get() -> Any:
    return structlog.get_logger()
