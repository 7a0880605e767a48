"""Lines per part of the repository, against those last recorded: `make weight`.

In: the files that git tracks, and `weight.json` beside this file. Out: a table; with `--record`
the record is written. Lines of code are counted with their comments and empty lines: Python, SQL,
templates, style sheets, scripts. Generated files and documents are not.
"""

import argparse
import json
import subprocess
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path(__file__).with_name("weight.json")
CODE = frozenset({".py", ".sql", ".html", ".css", ".js", ".tpl", ".sh", ".go"})


def part_of(path: str) -> str:
    """`services/cost/core/charges.py` belongs to `services/cost`, `trainer/drivetrain/marker.py` to
    `trainer`, `tests/unit/cost/test_charges.py` to `tests/unit`.
    """
    folders = path.split("/")[:-1]
    num = 2 if folders and folders[0] in ("services", "tests") else 1
    return "/".join(folders[:num]) or "."


def weigh() -> dict[str, int]:
    """Lines by part."""
    listed = subprocess.run(
        ("git", "ls-files", "-z"), cwd=ROOT, capture_output=True, text=True, check=True
    )
    lines: Counter[str] = Counter()
    for path in filter(None, listed.stdout.split("\0")):
        file = ROOT / path
        if file.suffix in CODE and file.is_file():
            lines[part_of(path)] += file.read_bytes().count(b"\n")
    return dict(sorted(lines.items()))


def table(now: dict[str, int], before: dict[str, int]) -> list[str]:
    rows = [f"{'part':<24}{'recorded':>10}{'now':>10}{'change':>10}"]
    for part in sorted(now.keys() | before.keys()):
        old, new = before.get(part, 0), now.get(part, 0)
        rows.append(f"{part:<24}{old:>10,}{new:>10,}{new - old:>+10,}")
    for title, is_counted in (("product", is_product), ("all", lambda _part: True)):
        old = sum(lines for part, lines in before.items() if is_counted(part))
        new = sum(lines for part, lines in now.items() if is_counted(part))
        rows.append(f"{title:<24}{old:>10,}{new:>10,}{new - old:>+10,}")
    return rows


def is_product(part: str) -> bool:
    return part.split("/")[0] in ("schemas", "trainer", "services", "deploy")


def main() -> None:
    parser = argparse.ArgumentParser(prog="make weight", description=__doc__)
    parser.add_argument("--record", action="store_true", help="keep these lines as the record")
    wants_record: bool = parser.parse_args().record
    now = weigh()
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {"lines": {}}
    print("\n".join(table(now, recorded["lines"])))
    if wants_record:
        commit = subprocess.run(
            ("git", "rev-parse", "HEAD"), cwd=ROOT, capture_output=True, text=True, check=True
        )
        date = datetime.now(UTC).date().isoformat()
        content = {"commit": commit.stdout.strip(), "date": date, "lines": now}
        RECORD.write_text(json.dumps(content, indent=2) + "\n")


if __name__ == "__main__":
    main()
