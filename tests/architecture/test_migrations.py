"""A release runs on the schema of the next one: during an upgrade replicas of both run at once, and
a rollback leaves the schema as it is (docs/guides/upgrade.md)."""

import re

from tests.architecture.test_hygiene import ROOT, tracked

# What a process of the release before would miss, or be refused.
TAKES_AWAY = re.compile(
    r"\bdrop\s+(?:table|column|view|function)\b|\brename\s+(?:to|column)\b"
    r"|\balter\s+column\s+\w+\s+(?:type|set\s+not\s+null)\b"
    r"|\badd\s+column\s+\w+(?:(?!\bdefault\b|,|;).)*\bnot\s+null(?:(?!\bdefault\b|,|;).)*[,;]",
    re.IGNORECASE | re.DOTALL,
)


def test_a_migration_takes_nothing_away_that_the_release_before_uses() -> None:
    found = set()
    for path in tracked("services/*/sql/*.sql"):
        text = re.sub(r"--.*", "", path.read_text())
        for own in re.findall(r"\bcreate\s+table\s+(\w+)", text):
            # A table that is there for the migration alone.
            text = re.sub(rf"\bdrop\s+table\s+{own}\s*;", "", text)
        if TAKES_AWAY.search(text):
            found.add(str(path.relative_to(ROOT)))
    assert not found, "add what is new now; drop what is old a release later"
