"""Builds the environment of the tools in the user's cache: `make exchange-tools`.

An environment knows its own place, so it is built where it stays and marked as complete at the end.
Two builds at once wait for each other.
"""

import fcntl
import shutil
import subprocess
import sys
import time
from pathlib import Path

from tests.exchange.tools import LOCK, cache_directory, find_tools

NEEDED_MB = 3000  # what is installed, and uv's cache of it


def main() -> None:
    target = cache_directory()
    target.parent.mkdir(parents=True, exist_ok=True)
    with (target.parent / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if find_tools() is not None:
            print(f"exchange-tools: already built, in {target}")
            return
        _require_space(target.parent)
        began = time.monotonic()
        print("exchange-tools: installing MLflow, TensorBoard and pandas (once)", flush=True)
        if target.exists():
            shutil.rmtree(target)
        _uv("venv", "--quiet", "--python", sys.executable, str(target))
        _uv("pip", "sync", "--quiet", "--require-hashes", "--python", str(target), str(LOCK))
        (target / "complete").touch()
        print(f"exchange-tools: ready in {time.monotonic() - began:.0f} s, in {target}")


def _require_space(directory: Path) -> None:
    free_mb = shutil.disk_usage(directory).free // 2**20
    if free_mb < NEEDED_MB:
        sys.exit(
            f"exchange-tools: {NEEDED_MB} MB of disk space are required, but {free_mb} MB are free "
            f"in {directory}: free some space, or set XDG_CACHE_HOME to another disk"
        )


def _uv(*arguments: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "uv", *arguments], capture_output=True, text=True, check=False
    )
    if result.returncode != 0:
        sys.exit(f"exchange-tools: uv {' '.join(arguments)} failed:\n{result.stderr[-4000:]}")


if __name__ == "__main__":
    main()
