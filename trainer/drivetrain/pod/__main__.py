"""Starts a shim cold, in its own interpreter: in a directory of a launcher, or in a container.

In a container, `--only-fetch` is the init step: it fetches the code, and nothing more.
"""

import argparse
import sys
from pathlib import Path

from drivetrain.pod.container import TERMINATION_LOG, Container, make_directory
from drivetrain.pod.shim import fetch_only, run_pod


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m drivetrain.pod")
    place = parser.add_mutually_exclusive_group(required=True)
    place.add_argument("--directory", type=Path, help="of the pod, with its spec.json")
    place.add_argument("--spec", type=Path, help="the spec.json that is mounted in a container")
    parser.add_argument("--root", type=Path, default=Path("/drivetrain"))
    parser.add_argument("--notice", type=Path, help="the file of the annotation with the notice")
    parser.add_argument("--notice-seconds", type=float, default=30.0)
    parser.add_argument("--termination-log", type=Path, default=TERMINATION_LOG)
    parser.add_argument("--only-fetch", action="store_true")
    given = parser.parse_args()
    if given.spec is None:
        return run_pod(given.directory, is_warm=False)
    container = Container(given.notice, given.notice_seconds, given.termination_log)
    directory = make_directory(given.root, given.spec)
    if given.only_fetch:
        return fetch_only(directory, container)
    return run_pod(directory, is_warm=False, container=container)


if __name__ == "__main__":
    sys.exit(main())
