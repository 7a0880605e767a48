"""What the documents point to exists, and rules are named by the numbers they have."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from drivetrain_schemas.variables import VARIABLES
from services.runtime.settings import Settings
from tests.architecture.test_hygiene import ROOT, tracked

WITH_SETTINGS = sorted(path.parent.name for path in (ROOT / "services").glob("*/settings.py"))
ARCHITECTURE = ROOT / "docs" / "architecture.md"
NUM_RULES = 20
# Written as code between backticks, with a slash: a path of this repository.
PATH = re.compile(r"`((?:deploy|docs|examples|schemas|scripts|services|tests|trainer)/[\w./-]+)`")
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


# The pages of operators: what they name is easily renamed elsewhere.
PAGES = [
    ROOT / name
    for name in (
        "README.md",
        "deploy/charts/README.md",
        "deploy/images/README.md",
        "docs/guides/install-kubernetes.md",
        "docs/guides/security.md",
        "docs/guides/upgrade.md",
    )
] + sorted(ROOT.glob("deploy/charts/*/README.md"))


def names(pattern: str, path: Path) -> set[str]:
    return set(re.findall(pattern, path.read_text()))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_targets_charts_files_and_modules_of_a_page_exist(page: Path) -> None:
    targets = names(r"(?m)^([a-z-]+):", ROOT / "Makefile")
    assert names(r"(?m)(?:`|^)make ([a-z][a-z-]*)", page) <= targets
    # Of packages: a chart in the tree lacks the library chart that it depends on.
    installed = names(r"helm (?:install|upgrade) \S+ (\S+)", page)
    assert installed <= {
        f"build/charts/{name}-{version}.tgz" for name, version in _charts().items()
    }
    for file in names(r"--filename ([\w./-]+)", page) | names(r"submit (examples/[\w./-]+)", page):
        assert (ROOT / file).exists(), file
    for module in names(r"python -m ((?:services|deploy|schemas)[\w.]*\w)", page):
        path = ROOT / module.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), module


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_settings_of_a_page_exist(page: Path) -> None:
    settings = {f"DRIVETRAIN_{name.upper()}" for name in _settings()}
    clients = {"DRIVETRAIN_URL", "DRIVETRAIN_TOKEN", "DRIVETRAIN_HOME"}
    named = {name.removesuffix("_FILE") for name in names(r"DRIVETRAIN_[A-Z_]+[A-Z]", page)}
    assert named <= settings | clients | {variable.name for variable in VARIABLES}
    known = [path.read_text() for path in (ROOT / "services").rglob("instruments.py")]
    for metric in names(r"`(drivetrain_\w+)`", page) - {"drivetrain_schemas"}:
        assert any(metric.removesuffix("_total") in text for text in known), metric


def _charts() -> dict[str, str]:
    return {
        path.parent.name: re.findall(r"(?m)^version: (.*)$", path.read_text())[0]
        for path in ROOT.glob("deploy/charts/*/Chart.yaml")
    }


def _settings() -> set[str]:
    modules = [import_module(f"services.{name}.settings") for name in WITH_SETTINGS]
    classes = [
        value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Settings)
    ]
    return {field for each in classes for field in each.model_fields}
