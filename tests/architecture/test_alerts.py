"""Alerts, their runbooks, and the metrics that both name."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client.metrics import MetricWrapperBase

ROOT = Path(__file__).resolve().parents[2]
RUNBOOKS = ROOT / "docs" / "runbooks"
SECTIONS = ["## What it means", "## How to look", "## What to do"]
PAGES = sorted(path for path in RUNBOOKS.glob("*.md") if path.name != "README.md")


def rules() -> list[dict[str, Any]]:
    return [
        rule
        for path in sorted(ROOT.glob("deploy/alerts/*.yaml"))
        for group in yaml.safe_load(path.read_text())["groups"]
        for rule in group["rules"]
    ]


ALERTS = [rule for rule in rules() if "alert" in rule]


def exposed() -> dict[str, set[str]]:
    """The names of all series that services expose, and their labels."""
    found: dict[str, set[str]] = {}
    for path in ROOT.glob("services/*/instruments.py"):
        module = importlib.import_module(f"services.{path.parent.name}.instruments")
        for metric in vars(module).values():
            if isinstance(metric, MetricWrapperBase):
                for suffix in ("", "_total", "_bucket", "_count", "_sum"):
                    found[metric._name + suffix] = set(metric._labelnames)
    return found


EXPOSED = exposed()


@pytest.mark.parametrize("alert", ALERTS, ids=lambda rule: str(rule["alert"]))
def test_an_alert_has_a_severity_and_a_page(alert: dict[str, Any]) -> None:
    assert alert["labels"]["severity"] in ("page", "ticket")
    assert alert["annotations"].keys() == {"summary", "description", "runbook_url"}
    assert alert["annotations"]["runbook_url"] == f"docs/runbooks/{alert['alert']}.md"
    assert (ROOT / alert["annotations"]["runbook_url"]).is_file()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_page_is_of_an_alert_and_says_what_to_do(page: Path) -> None:
    severities = sorted({it["labels"]["severity"] for it in ALERTS if it["alert"] == page.stem})
    assert severities, "no alert has this name"
    text = page.read_text()
    assert text.startswith(f"# {page.stem}\n")
    assert f"Severity: {' and '.join(severities)}." in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == SECTIONS


def test_what_rules_and_pages_name_is_exposed() -> None:
    texts = {rule.get("alert", rule.get("record")): rule["expr"] for rule in rules()}
    texts |= {page.stem: page.read_text() for page in PAGES}
    for name, text in texts.items():
        unknown = set(re.findall(r"\bdrivetrain_[a-z_]+", text)) - EXPOSED.keys()
        assert not unknown, f"{name} names {unknown}"


def test_rules_select_only_by_labels_that_a_metric_has() -> None:
    of_target = {"job", "service", "instance", "le"}
    for rule in rules():
        for metric, selector in re.findall(r"(drivetrain_\w+)\{([^}]*)\}", rule["expr"]):
            labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selector))
            assert labels <= EXPOSED[metric] | of_target, f"{metric} has no {labels}"
