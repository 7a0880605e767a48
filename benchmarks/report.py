"""The one form of a benchmark's result: rows, printed as a table and written as JSON."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True)
class Row:
    """`ours` and `peer` with their unit, `ratio` ours / peer, `target` in words; `met` or not."""

    id: str
    what: str
    ours: str
    peer: str
    ratio: float
    target: str
    met: bool


@dataclass(frozen=True, slots=True)
class Options:
    quick: bool
    json: Path | None


def options(description: str) -> Options:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--json", type=Path, help="write the rows to this file")
    given = parser.parse_args()
    return Options(given.quick, given.json)


def publish(rows: Sequence[Row], json_path: Path | None, packages: Sequence[str] = ()) -> None:
    """Print the rows with machine and versions; write the same rows where asked."""
    table = Table("what", "ours", "peer", "ours / peer", "target", "met")
    for row in rows:
        table.add_row(
            row.what, row.ours, row.peer, f"{row.ratio:.3g}", row.target, "yes" if row.met else "no"
        )
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    console.print(machine(packages), style="dim")
    if json_path is not None:
        json_path.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


def machine(packages: Sequence[str] = ()) -> str:
    """One line: when, on what, with which versions."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    versions = ", ".join(f"{name} {version(name)}" for name in packages)
    return (
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, {memory:.0f} GiB, "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
        + (f", {versions}" if versions else "")
    )
