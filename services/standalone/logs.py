"""Log files of the children: bounded in size, and their ends for error messages.

A child writes to its file itself (opened for appending), so a stopped supervisor never blocks it.
A file that has grown too large is copied to `<name>.1` and truncated; because of the append
mode the child continues at its new end. At most two files of the limit are kept for each child.
"""

import json
import shutil
from collections import deque
from pathlib import Path

LIMIT_BYTES = 16 * 1024 * 1024
EXCEPTION_LINES = 12


def rotate_log(path: Path, limit_bytes: int = LIMIT_BYTES) -> bool:
    """Rotate the file if it is over the limit; True if it was."""
    try:
        if path.stat().st_size <= limit_bytes:
            return False
    except FileNotFoundError:
        return False
    older = path.with_name(path.name + ".1")
    try:
        shutil.copyfile(path, older)
    except OSError:
        # On a full disk the space of both files is needed more than old lines.
        older.unlink(missing_ok=True)
    with path.open("r+b") as file:
        file.truncate(0)
    return True


def last_lines(path: Path, num_lines: int) -> str:
    """The end of a log, without reading the whole of it."""
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - 64 * 1024))
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return ""
    return "\n".join(deque(text.splitlines(), maxlen=num_lines))


def readable(text: str) -> str:
    """Readable lines: time, message, fields and end of exception of a service's JSON line."""
    return "\n".join(_readable_line(line) for line in text.splitlines())


def _readable_line(line: str) -> str:
    try:
        entry = json.loads(line)
        time, level, message = entry.pop("timestamp"), entry.pop("level"), entry.pop("event")
    except (ValueError, KeyError, TypeError, AttributeError):
        return line
    exception = str(entry.pop("exception", ""))
    keys = "".join(f" {name}={value}" for name, value in entry.items())
    trace = "".join(f"\n    {row}" for row in exception.splitlines()[-EXCEPTION_LINES:])
    return f"{time} {level:<7} {message}{keys}{trace}"
