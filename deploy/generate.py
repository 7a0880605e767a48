"""Generates what deploy/ derives: values of charts, tables of values, Kafka resources, dashboards.

`python -m deploy.generate` writes, `--check` writes nothing and exits with 1 if a file differs.
"""

import argparse
import sys
from pathlib import Path

from deploy.documents import charts, dashboards, kafka

ROOT = Path(__file__).resolve().parents[1]


def documents() -> dict[Path, str]:
    return charts.documents() | kafka.documents() | dashboards.documents()


def differing(files: dict[Path, str]) -> list[Path]:
    """The files that differ from what would be written."""
    return sorted(
        path for path, text in files.items() if not path.exists() or path.read_text() != text
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 on differences")
    is_check = parser.parse_args().check
    files = documents()
    changed = differing(files)
    for path in changed:
        if is_check:
            print(f"{path.relative_to(ROOT)} is not up to date: run make gen")
        else:
            path.write_text(files[path])
            print(f"wrote {path.relative_to(ROOT)}")
    return 1 if is_check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
