"""The name of a process in `ps` and `top`, for processes that were forked and not exec'ed.

Such a process shows its parent's command. That memory is overwritten in place, so a title is cut
to the length of the parent's command.
"""

import ctypes

from drivetrain.pod import processes

_PR_SET_NAME = 15
_ARG_START, _ARG_END = 45, 46  # of /proc/PID/stat, counted from after the name


def set_title(title: str) -> None:
    text = title.encode("utf-8", "replace").replace(b"\0", b" ")
    ctypes.CDLL(None).prctl(_PR_SET_NAME, text[:15], 0, 0, 0)
    fields = processes.stat_fields("self")
    start, end = int(fields[_ARG_START]), int(fields[_ARG_END])
    room = end - start
    ctypes.memmove(start, text[: room - 1].ljust(room, b"\0"), room)
