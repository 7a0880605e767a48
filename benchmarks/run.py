"""Runs benchmarks: `python -m benchmarks.run [--quick] [NAME ...]`.

Each is a process of its own. A whole run (`make bench`) shows what they print and records their
results. Quick ones (`make bench-quick`) run two at a time, show a line each and record nothing.
Either goes on to the end, and then names what failed: with an error, without rows, or too slowly
where it is quick. What a row says fails nothing. A benchmark that lacks something here is skipped,
with its reason.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from benchmarks.catalogue import NAMES
from benchmarks.recording import Result, result_path
from benchmarks.report import SKIPPED

QUICK_SECONDS = 300.0
# Figures of quick runs are not kept, so they may share the machine.
QUICK_AT_ONCE = 2


@dataclass(frozen=True, slots=True)
class Outcome:
    """`text`: the number of rows, the reason why it was skipped, or what went wrong."""

    name: str
    state: str
    text: str
    seconds: float


def command(name: str) -> list[str]:
    return [sys.executable, "-m", f"benchmarks.{name}"]


def run_one(name: str, program: Sequence[str], *, is_quick: bool) -> Outcome:
    """Run this program with an option that names the file for its result."""
    with tempfile.TemporaryDirectory() as folder:
        written, log = Path(folder) / "result.json", Path(folder) / "log"
        given = [*program, *(["--quick"] if is_quick else []), "--json", str(written)]
        began = time.monotonic()
        with log.open("wb") as output:
            to = output if is_quick else None
            limit = QUICK_SECONDS if is_quick else None
            try:
                status = subprocess.run(
                    given, stdout=to, stderr=to and subprocess.STDOUT, timeout=limit, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                status = None
        seconds = time.monotonic() - began
        tail = log.read_text(errors="replace")[-3000:]
        result = written_by(name, written)
        if result is not None and not is_quick:
            result_path(name).parent.mkdir(exist_ok=True)
            result_path(name).write_text(result.to_json())
    return Outcome(name, *judge(status, result, tail), seconds)


def written_by(name: str, path: Path) -> Result | None:
    """The result of this benchmark there, if it is one."""
    try:
        result = Result.model_validate_json(path.read_text())
    except (FileNotFoundError, ValidationError):
        return None
    return result if result.benchmark == name else None


def judge(status: int | None, result: Result | None, tail: str) -> tuple[str, str]:
    """What became of a run that ended with this status and printed this at its end."""
    if status is None:
        return "failed", f"{tail}\nnot done after {QUICK_SECONDS:.0f} s"
    if status == SKIPPED:
        return "skipped", tail.rpartition("skipped: ")[2].strip()
    if status != 0:
        return "failed", f"{tail}\nexit status {status}"
    if result is None:
        return "failed", f"{tail}\nno rows"
    return "ran", f"{len(result.rows)} rows"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes; records nothing")
    parser.add_argument("names", nargs="*", metavar="NAME", help="all of them, if none is given")
    given = parser.parse_args()
    if unknown := set(given.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    names, began = given.names or NAMES, time.monotonic()
    with ThreadPoolExecutor(QUICK_AT_ONCE if given.quick else 1) as pool:
        runs = [pool.submit(run_one, name, command(name), is_quick=given.quick) for name in names]
        try:
            outcomes = [_shown(done.result()) for done in as_completed(runs)]
        finally:
            pool.shutdown(cancel_futures=True)
    failed = sorted(outcome.name for outcome in outcomes if outcome.state == "failed")
    seconds = time.monotonic() - began
    print(f"{len(outcomes)} benchmarks in {seconds:.0f} s; failed: {', '.join(failed) or 'none'}")
    return 1 if failed else 0


def _shown(outcome: Outcome) -> Outcome:
    took = f"{outcome.seconds:6.1f} s"
    print(f"{outcome.name:22} {outcome.state:8} {took}  {outcome.text}", flush=True)
    return outcome


if __name__ == "__main__":
    sys.exit(main())
