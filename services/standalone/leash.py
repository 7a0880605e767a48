"""Run a program that ends with its parent, as another user if asked; then become that program.

`python -I -S leash.py PARENT_PID SIGNAL UID:GID|- PROGRAM ARGUMENTS...`
A separate program and not a `preexec_fn`, because running Python between fork and exec of a process
with threads may deadlock. It must stay free of imports beyond the standard library.
The death signal is set last: changing the user clears it.
"""

import ctypes
import os
import sys

PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> None:
    parent_pid, death_signal, user = int(arguments[0]), int(arguments[1]), arguments[2]
    program = arguments[3:]
    if user != "-":
        uid, gid = (int(part) for part in user.split(":"))
        os.setgroups([])
        os.setgid(gid)
        os.setuid(uid)
    if death_signal:
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() != parent_pid:
            # The parent ended before the death signal was set.
            sys.exit(1)
    os.execv(program[0], program)


if __name__ == "__main__":
    main(sys.argv[1:])
