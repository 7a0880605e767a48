"""Lines of a program's output, without the states of a progress bar that nobody could read.

Pure. Text that is followed by a carriage return or moves the cursor up is painted over by what
follows: the newest passes every few seconds, the last one always. Everything else passes as it is.
"""

import re
from collections.abc import Iterator

SECONDS_BETWEEN_STATES = 5.0
_LINE_END = re.compile(rb"(\r\n|\n|\r)")
_MOVES_UP = re.compile(rb"\x1b\[\d*A")


class Lines:
    def __init__(self) -> None:
        self.rest = b""  # what has no end yet
        self._state: bytes | None = None  # painted over, and newer than what passed
        self._passed_at: float | None = None  # the last state; None where no bar is seen
        # A bar's line with a new line after it: closed, unless the next bar is painted below it.
        self._closed: bytes | None = None
        self._is_repainted = False

    def feed(self, data: bytes, now: float) -> Iterator[bytes]:
        parts = _LINE_END.split(self.rest + data)
        self.rest = parts.pop()
        if not self.rest and parts and parts[-1] == b"\r":
            self.rest = parts.pop(-2) + parts.pop()  # perhaps half of \r\n
        for text, end in zip(parts[::2], parts[1::2], strict=True):
            yield from self._line(text, end, now)

    @property
    def is_plain(self) -> bool:
        """No bar is seen, so that a line stands for itself."""
        return self._state is None and self._closed is None and not self._is_repainted

    def cut(self) -> bytes:
        """What has no end yet, as a line."""
        cut, self.rest = self.rest, b""
        return cut

    def due(self, now: float) -> Iterator[bytes]:
        """A state that has stood still for so long."""
        if self._passed_at is not None and now - self._passed_at >= SECONDS_BETWEEN_STATES:
            yield from self._give_up_state(now)

    def last(self) -> Iterator[bytes]:
        """The output is complete."""
        if self.rest:
            yield from self._line(self.rest.removesuffix(b"\r"), b"\n", 0.0)
        self.rest = b""
        yield from self._give_up_state(0.0)

    def pending(self) -> bytes:
        """What was printed and has not passed yet."""
        lines = [line for line in (self._closed, self._state) if line is not None]
        return b"".join(line + b"\n" for line in lines) + self.rest

    def _line(self, text: bytes, end: bytes, now: float) -> Iterator[bytes]:
        is_blank = not text.strip()
        moves_up = _MOVES_UP.search(text) is not None
        if end == b"\r" or moves_up:
            if not is_blank:
                if self._closed is not None and moves_up:
                    self._closed = None  # it is painted again
                yield from self._paint(text, now)
            self._is_repainted = True
            return
        if is_blank and self._state is not None:
            text = self._state  # a new line after the state that stands there
        yield from self._close()
        self._state = None
        if self._is_repainted:
            self._closed, self._passed_at = text, now
        else:
            self._passed_at = None
            yield text
        self._is_repainted = False

    def _paint(self, text: bytes, now: float) -> Iterator[bytes]:
        yield from self._close()
        if self._passed_at is None:
            self._passed_at = now  # a short bar passes once, when it is complete
        if now - self._passed_at >= SECONDS_BETWEEN_STATES:
            self._passed_at, self._state = now, None
            yield text
        else:
            self._state = text

    def _close(self) -> Iterator[bytes]:
        closed, self._closed = self._closed, None
        if closed is not None:
            yield closed

    def _give_up_state(self, now: float) -> Iterator[bytes]:
        yield from self._close()
        state, self._state = self._state, None
        if state is not None:
            self._passed_at = now
            yield state
