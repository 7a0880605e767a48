"""What a benchmark calls: its options first, and `publish` with its rows at the end.

The rows are printed as a table. Those of a whole run are recorded in `benchmarks/results/`, from
which docs/performance.md is made; a quick run, or one of other sizes, records nothing. With
`--json FILE` the result is written there instead, of a quick run too.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import NoReturn

from rich.console import Console
from rich.table import Table

from benchmarks.recording import Result, Row, record, result_path

__all__ = ["Row"]

SKIPPED = 77
"""The exit status of a benchmark that lacks something on this machine, as other tools use it."""


@dataclass(frozen=True, slots=True)
class Options:
    """`path`: where the result goes, if anywhere. `load`: of the machine, before."""

    name: str
    quick: bool
    path: Path | None
    load: float


def arguments(description: str) -> argparse.ArgumentParser:
    """The options that every benchmark has; some add their own."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="small sizes; nothing is recorded")
    parser.add_argument("--json", type=Path, help="write the result here, and record nothing")
    return parser


def options(name: str, description: str) -> Options:
    return options_of(name, arguments(description).parse_args())


def options_of(name: str, given: argparse.Namespace, *, is_whole: bool = True) -> Options:
    """Of a benchmark with options of its own. `is_whole`: they leave the sizes as they are."""
    recorded = result_path(name) if is_whole and not given.quick else None
    return Options(name, given.quick, given.json or recorded, os.getloadavg()[0])


def publish(
    rows: Sequence[Row], given: Options, packages: Sequence[str] = (), remark: str = ""
) -> None:
    """Print the rows with machine and versions; record them where that is wanted."""
    result = record(
        given.name, rows, packages, is_quick=given.quick, load=given.load, remark=remark
    )
    table = Table("what", "ours", "peer", "ratio", "target", "met")
    for row in result.rows:
        table.add_row(
            row.what,
            row.ours,
            row.peer,
            "" if row.ratio is None else plain(row.ratio),
            row.target,
            "yes" if row.met else "no",
        )
    console = Console(width=None if sys.stdout.isatty() else 140)
    console.print(table)
    console.print(conditions(result), style="dim")
    if given.path is not None:
        given.path.write_text(result.to_json())


def plain(ratio: float) -> str:
    """Three digits, never with an exponent."""
    digits = f"{Decimal(f'{ratio:.3g}'):f}"
    return f"{int(digits):,}" if digits.isdigit() else digits


def conditions(result: Result) -> str:
    """One line: when, on what, with which versions, beside what."""
    machine = result.machine
    shown = [
        f"{result.date:%Y-%m-%d}",
        f"commit {result.commit[:9]}" + (" with changes" if result.is_dirty else ""),
        f"{machine.cores} cores, {machine.memory_gib} GiB",
        *([machine.cpu] if machine.cpu else []),
        machine.kernel,
        *(f"{name} {version}" for name, version in result.versions.items()),
        *([] if result.load is None else [f"load {result.load:.1f} before"]),
        *(["quick"] if result.is_quick else []),
    ]
    return ", ".join(shown)


def skip(reason: str) -> NoReturn:
    """End a benchmark that cannot run here."""
    print(f"skipped: {reason}", flush=True)
    raise SystemExit(SKIPPED)
