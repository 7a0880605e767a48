"""Notices at once that a pod has ended: inotify watches on the directories of pods.

Input: directories of pods; output: a call when `exit.json` has appeared in one. A call only means
"look now": pods are observed again and again anyway, so a lost or forged notice does no harm, and a
machine without inotify only waits longer.

A pod's own programs can write into its directory. So the watch of a directory ends with the first
`exit.json`, and after more other files than a pod needs.
"""

import asyncio
import ctypes
import os
import struct
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from services.runtime import logs

log = logs.get()

# From <sys/inotify.h>.
_IN_MOVED_TO = 0x80
_IN_IGNORED = 0x8000
_IN_ONLYDIR = 0x1000000
_IN_DONT_FOLLOW = 0x2000000
_HEADER = struct.Struct("iIII")
_READ_BYTES = 64 * 1024
_MAX_OTHER_FILES = 64
_LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True)
class _Watch:
    pod_id: str
    num_other_files: int = 0


class Watches:
    """Used from the thread of the event loop only. Does nothing unless `run` runs."""

    def __init__(self) -> None:
        self._inotify: int | None = None
        self._watches: dict[int, _Watch] = {}
        # By pod; None where the watch has ended, or could not begin.
        self._numbers: dict[str, int | None] = {}

    async def run(self, wake: Callable[[], None]) -> None:
        """Call `wake` at each notice, until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            inotify = _checked(_LIBC.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            log.warning("ends of pods are found by polling only", error=str(error))
            await loop.create_future()
            return
        self._inotify = inotify
        loop.add_reader(inotify, self._read, inotify, wake)
        try:
            await loop.create_future()
        finally:
            self._inotify = None
            loop.remove_reader(inotify)
            os.close(inotify)

    def add(self, pod_id: str, directory: Path) -> None:
        """Watch it, once per pod."""
        if self._inotify is None or pod_id in self._numbers:
            return
        mask = _IN_MOVED_TO | _IN_ONLYDIR | _IN_DONT_FOLLOW
        try:
            added = _LIBC.inotify_add_watch(self._inotify, os.fsencode(directory), mask)
            number = self._numbers[pod_id] = _checked(added)
        except OSError as error:
            self._numbers[pod_id] = None
            log.warning("the end of a pod is found by polling", pod_id=pod_id, error=str(error))
        else:
            self._watches[number] = _Watch(pod_id)

    def keep(self, pod_ids: Collection[str]) -> None:
        """Forget all other pods."""
        for pod_id in self._numbers.keys() - pod_ids:
            self._end(pod_id)
            del self._numbers[pod_id]

    def _read(self, inotify: int, wake: Callable[[], None]) -> None:
        try:
            content = os.read(inotify, _READ_BYTES)
        except BlockingIOError:
            return
        for number, is_gone, name in _events(content):
            watch = self._watches.get(number)
            if watch is None:
                continue
            if is_gone:  # the directory was removed
                del self._watches[number]
                self._numbers[watch.pod_id] = None
                continue
            is_end = name == b"exit.json"
            watch.num_other_files += not is_end
            if is_end or watch.num_other_files > _MAX_OTHER_FILES:
                self._end(watch.pod_id)
            if is_end:
                wake()

    def _end(self, pod_id: str) -> None:
        number = self._numbers[pod_id]
        self._numbers[pod_id] = None
        if number is not None:
            del self._watches[number]
            _LIBC.inotify_rm_watch(self._inotify, number)


def _events(content: bytes) -> Iterator[tuple[int, bool, bytes]]:
    """The watch, whether it is gone, and the name of the file that appeared."""
    position = 0
    while position < len(content):
        number, mask, _, length = _HEADER.unpack_from(content, position)
        position += _HEADER.size
        name = content[position : position + length].rstrip(b"\0")
        position += length
        yield number, bool(mask & _IN_IGNORED), name


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result
