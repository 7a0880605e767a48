"""The code blocks of a guide, for tests that run or render what it says."""

import re
from pathlib import Path

GUIDES = Path(__file__).parents[1] / "docs" / "guides"


def section(guide: str, heading: str) -> str:
    """The text below a heading, up to the next one of its level or higher."""
    text = (GUIDES / guide).read_text()
    _, found, rest = text.partition(f"\n## {heading}\n")
    assert found, f"{guide} has no section {heading!r}"
    return rest.partition("\n## ")[0]


def blocks(text: str) -> list[str]:
    """The fenced blocks that name no language."""
    return re.findall(r"^```\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
