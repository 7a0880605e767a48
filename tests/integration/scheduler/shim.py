"""The least shim that keeps the protocol of a pod's files, for tests of the launcher alone.

`python shim.py --directory DIR`: lock, identity, the job's command once per rank, stop notice,
exit.json after the last child is gone. A command that begins with `never` makes it sleep before it
takes the lock, as a shim does that is slow to start.
"""

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

PR_SET_CHILD_SUBREAPER = 36


def main(directory: Path) -> None:
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    spec = json.loads((directory / "spec.json").read_text())
    if spec["job"]["command"][0] == "never":
        time.sleep(600)
    lock = os.open(directory / "lock", os.O_WRONLY | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(3)
    if (directory / "identity.json").exists():
        sys.exit(4)
    stat = Path("/proc/self/stat").read_text()
    identity = {
        "boot_id": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        "pid": os.getpid(),
        "start_ticks": int(stat[stat.rindex(")") + 2 :].split()[19]),
    }
    ranks: list[subprocess.Popen] = []
    told: list[int] = []

    def stop(number: int, _: object) -> None:
        told.append(number)
        for rank in ranks:
            rank.terminate()

    signal.signal(signal.SIGTERM, stop)
    write(directory / "identity.json", identity)
    ranks += [
        subprocess.Popen(
            spec["job"]["command"],
            env=os.environ | spec["job"]["environment"] | {"RANK": str(spec["first_rank"] + n)},
        )
        for n in range(spec["num_ranks"])
    ]
    for rank in ranks if told else ():
        rank.terminate()  # started while the signal came
    codes = [rank.wait() for rank in ranks]
    failed = [number for number, code in enumerate(codes) if code]
    outcome = "succeeded"
    if failed:
        is_interrupted = bool(told) or {codes[n] for n in failed} == {75}
        outcome = "interrupted" if is_interrupted else "failed"
    end = {
        "pod_id": spec["pod_id"],
        "outcome": outcome,
        "ranks": [
            {
                "rank": spec["first_rank"] + number,
                "exit_code": code if code >= 0 else None,
                "signal": -code if code < 0 else None,
            }
            for number, code in enumerate(codes)
        ],
        "first_failed_rank": spec["first_rank"] + failed[0] if failed else None,
        "ended_at": datetime.now(UTC).isoformat(),
    }
    write(directory / "exit.json", end)


def write(path: Path, content: dict) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(content))
    partial.rename(path)


if __name__ == "__main__":
    main(Path(sys.argv[2]))
