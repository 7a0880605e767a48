"""Run the heavy suites that a change asks for: `make suites BASE=main`.

In: the table under "Heavy suites" in CONTRIBUTING.md, and the files that differ from BASE, those
not committed among them. Out: the exit code of the first suite that failed, else 0. `--list` only
prints the commands.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
GUIDE = ROOT / "CONTRIBUTING.md"

Row = tuple[tuple[str, ...], tuple[str, ...]]
"""Paths, and the commands that a change of a file under one of them asks for."""


def rows(guide: str) -> tuple[Row, ...]:
    section = guide.partition("## Heavy suites\n")[2].partition("\n## ")[0]
    cells = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    found = (tuple(tuple(re.findall(r"`([^`]+)`", cell)) for cell in row[:2]) for row in cells)
    return tuple((row[0], row[1]) for row in found if len(row) == 2 and all(row))


def suites_of(changed: Iterable[str], table: Sequence[Row]) -> tuple[str, ...]:
    """The commands for these files, each once, in the order of the table."""
    files = tuple(changed)
    wanted = [
        command
        for paths, commands in table
        if any(file.startswith(paths) for file in files)
        for command in commands
    ]
    return tuple(dict.fromkeys(wanted))


def changed_files(base: str) -> tuple[str, ...]:
    """What differs from the commit at which this branch left `base`; untracked files too."""
    left = _git("merge-base", base, "HEAD").strip()
    differing = _git("diff", "--name-only", left)
    return tuple((differing + _git("ls-files", "--others", "--exclude-standard")).split())


def _git(*arguments: str) -> str:
    done = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def main() -> int:
    parser = argparse.ArgumentParser(prog="make suites", description=__doc__)
    parser.add_argument("--base", default="main", help="compare with this commit or branch")
    parser.add_argument("--list", action="store_true", help="print the commands, run none")
    chosen = parser.parse_args()
    commands = suites_of(changed_files(chosen.base), rows(GUIDE.read_text()))
    print("\n".join(commands) or "no heavy suite is asked for", flush=True)
    for command in () if chosen.list else commands:
        done = subprocess.run(command.split(), cwd=ROOT, check=False)
        if done.returncode:
            print(f"{command} failed", file=sys.stderr)
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
