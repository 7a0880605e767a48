"""The media of a run: bytes to the object store, and a message for each to the shim.

A call only copies; one thread makes the bytes and stores them. Nothing here blocks or fails
training: what is refused, what does not fit the queue and what the store does not take is left out,
with a warning. The bytes are named by their SHA-256, so what is logged again costs nothing more.
"""

import hashlib
import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from drivetrain.errors import StorageError
from drivetrain.media_content import Content, Refused, check_size
from drivetrain.messages import MediaSaved
from drivetrain.storage import MarkedStorage
from drivetrain_schemas.media import (
    MAX_CAPTION_CHARACTERS,
    MAX_FILE_NAME_CHARACTERS,
    MAX_ITEMS,
)
from drivetrain_schemas.specs import METRIC_NAME_WORDS, is_metric_name
from drivetrain_schemas.text import storable

MAX_ATTEMPT_ITEMS = 10_000
MAX_ATTEMPT_BYTES = 2 * 1000**3
MAX_WAITING = 256
MAX_WAITING_BYTES = 128 * 1024**2
# The store may be away for a moment.
TRIES_AFTER_SECONDS = (0.0, 0.5, 2.0, 5.0, 10.0)
_logger = logging.getLogger("drivetrain")

Warn = Callable[[str, str], None]


class Place(NamedTuple):
    name: str
    step: int
    item: int = 0
    caption: str = ""


class Media:
    """Of rank 0. `open_store` is called by the thread, with the first item."""

    def __init__(
        self,
        open_store: Callable[[], MarkedStorage],
        send: Callable[[MediaSaved], None],
        warn: Warn,
    ) -> None:
        self._open_store = open_store
        self._send = send
        self._warn = warn
        self._store: MarkedStorage | None = None
        self._stored: set[str] = set()
        self._number = 0
        self._num_bytes = 0
        self._waiting: deque[tuple[Place, int, Content]] = deque()
        self._waiting_bytes = 0
        self._changed = threading.Condition()
        self._give_up_at: float | None = None
        self._thread: threading.Thread | None = None

    def log(self, place: Place, make: Callable[[], Content]) -> None:
        """Queue one item; refuse it with a warning. Never raises."""
        try:
            self._queue(_checked(place), make())
        except Refused as refused:
            self._leave_out(place.name, str(refused))
        except Exception as error:  # any value may raise, and training continues
            self._leave_out(place.name, f"{type(error).__name__}: {error!s:.200}")

    def close(self, seconds: float) -> None:
        """Store what waits, within this time."""
        if self._thread is None:
            return
        with self._changed:
            self._give_up_at = time.monotonic() + seconds
            self._changed.notify_all()
        self._thread.join(seconds)
        if self._waiting:
            self._leave_out(
                self._waiting[0][0].name,
                f"{len(self._waiting)} were not stored within {seconds:g} s of the run's end",
            )
        self._thread = None
        self._give_up_at = None

    def _queue(self, place: Place, content: Content) -> None:
        with self._changed:
            if self._number >= MAX_ATTEMPT_ITEMS:
                raise Refused(f"this attempt has logged {MAX_ATTEMPT_ITEMS:,}, which is the limit")
            if (
                len(self._waiting) >= MAX_WAITING
                or self._waiting_bytes + content.held_bytes > MAX_WAITING_BYTES
            ):
                raise Refused("too much waits to be stored: log less often")
            self._number += 1
            self._waiting.append((place, self._number, content))
            self._waiting_bytes += content.held_bytes
            self._changed.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="drivetrain-media", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._give_up_at is not None:
                        return
                    self._changed.wait()
                place, number, content = self._waiting[0]
            try:
                self._store_one(place, number, content)
            except Refused as refused:
                self._leave_out(place.name, str(refused))
            except Exception as error:
                self._leave_out(place.name, f"{type(error).__name__}: {error!s:.200}")
            with self._changed:
                self._waiting.popleft()
                self._waiting_bytes -= content.held_bytes

    def _store_one(self, place: Place, number: int, content: Content) -> None:
        data = content.finish()
        check_size(len(data))
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._stored:
            if self._num_bytes + len(data) > MAX_ATTEMPT_BYTES:
                raise Refused(f"this attempt has stored {MAX_ATTEMPT_BYTES:,} bytes, the limit")
            self._put(digest, data)
            self._num_bytes += len(data)
            self._stored.add(digest)
        name = content.file_name
        self._send(
            MediaSaved(
                name=place.name,
                step=place.step,
                item=place.item,
                number=number,
                media=content.media,
                sha256=digest,
                size_bytes=len(data),
                image_form=content.image_form,
                caption=place.caption,
                file_name=None if name is None else storable(name)[-MAX_FILE_NAME_CHARACTERS:],
            )
        )

    def _put(self, digest: str, data: bytes) -> None:
        for number, pause in enumerate(TRIES_AFTER_SECONDS, start=1):
            with self._changed:
                self._changed.wait_for(lambda: self._give_up_at is not None, pause)
            try:
                if self._store is None:
                    self._store = self._open_store()
                self._store.put_if_absent(digest, data)
                return
            except StorageError:
                is_over = self._give_up_at is not None and time.monotonic() >= self._give_up_at
                if is_over or number == len(TRIES_AFTER_SECONDS):
                    raise

    def _leave_out(self, name: object, why: str) -> None:
        self._warn("media_left_out", f"{name!r:.200} is not logged: {why}")


def _checked(place: Place) -> Place:
    """Raises Refused."""
    if not is_metric_name(place.name):
        raise Refused(f"its name is not valid: write {METRIC_NAME_WORDS}")
    if not 0 <= place.item < MAX_ITEMS:
        raise Refused(f"there are more than {MAX_ITEMS} of one name at one step")
    caption = storable(str(place.caption))[:MAX_CAPTION_CHARACTERS]
    return Place(place.name, max(0, int(place.step)), place.item, caption)
