"""What the documents point to exists, and rules are named by the numbers they have."""

import re
from pathlib import Path

import pytest

from tests.architecture.test_hygiene import ROOT, tracked

ARCHITECTURE = ROOT / "docs" / "architecture.md"
NUM_RULES = 20
# Written as code between backticks, with a slash: a path of this repository.
PATH = re.compile(r"`((?:docs|examples|schemas|services|tests|trainer)/[\w./-]+)`")
LINK = re.compile(r"\]\((?!https?://|#)([^)#]+)")


def documents() -> list[Path]:
    return [path for path in tracked("*.md") if path.exists()]


@pytest.mark.parametrize("document", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_every_path_and_link_exists(document: Path) -> None:
    text = document.read_text()
    wrong = [name for name in PATH.findall(text) if not (ROOT / name).exists()]
    wrong += [name for name in LINK.findall(text) if not (document.parent / name).exists()]
    assert wrong == []


def test_the_rules_are_numbered_without_a_gap() -> None:
    rules = ARCHITECTURE.read_text().partition("\n## Rules\n")[2].partition("\n## ")[0]
    numbers = [int(found) for found in re.findall(r"^(\d+)\. \*\*", rules, re.MULTILINE)]
    assert numbers == list(range(1, NUM_RULES + 1))


def test_code_names_rules_by_document_and_number() -> None:
    wrong = []
    for path in tracked("*.py", "*.sql"):
        text = re.sub(r"\n\s*(?:#|--)?\s*", " ", path.read_text())
        for found in re.finditer(r"(.{0,22})\brule (\d+)", text):
            is_named = (
                found[1].endswith("docs/architecture.md, ") and 1 <= int(found[2]) <= NUM_RULES
            )
            if not is_named:
                wrong.append(f"{path.relative_to(ROOT)}: {found[0]}")
    assert wrong == [], 'write "docs/architecture.md, rule N"'
