"""Dashboards: every panel is explained, has a unit, and asks for what services expose."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.architecture.test_alerts import EXPOSED

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(ROOT.glob("deploy/dashboards/json/*.json"))
# Of Prometheus itself: of each target, and what prometheus_client adds.
OF_TARGETS = {"job", "service", "instance", "le"}
OF_PROCESSES = {
    "up",
    "process_start_time_seconds",
    "process_resident_memory_bytes",
    "process_cpu_seconds_total",
}


def panels(path: Path) -> list[dict[str, Any]]:
    return [it for it in json.loads(path.read_text())["panels"] if it["type"] != "row"]


ALL = [(path.stem, panel) for path in FILES for panel in panels(path)]


def test_there_is_one_of_each() -> None:
    names = {"fleet", "job", "services", "search", "checkpoints", "money"}
    assert {path.stem for path in FILES} == names
    for path in FILES:
        board = json.loads(path.read_text())
        assert board["uid"] == f"drivetrain-{path.stem}"
        assert {it["name"] for it in board["templating"]["list"]} >= {"datasource", "gateway"}
        assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


@pytest.mark.parametrize(("board", "panel"), ALL, ids=lambda it: str(it)[:40])
def test_a_panel_is_explained_and_asks_for_what_exists(board: str, panel: dict[str, Any]) -> None:
    assert panel["description"].strip().endswith(".")
    assert panel["fieldConfig"]["defaults"]["unit"]
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
    assert panel["targets"]
    for target in panel["targets"]:
        named = set(re.findall(r"\b(drivetrain_\w+|process_\w+|up)\b", target["expr"]))
        assert named <= EXPOSED.keys() | OF_PROCESSES
        for metric, selector in re.findall(r"(drivetrain_\w+)\{([^}]*)\}", target["expr"]):
            labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)", selector))
            assert labels <= EXPOSED[metric] | OF_TARGETS


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_variables_are_declared_and_links_lead_to_the_pages(path: Path) -> None:
    board = json.loads(path.read_text())
    declared = {it["name"] for it in board["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)\}?", path.read_text())) - {"__all"} <= declared
    links = [link for panel in panels(path) for link in panel.get("links") or ()]
    assert links, "no panel leads to a page"
    for link in links:
        assert re.fullmatch(r"\$\{gateway\}/((jobs/\$\{job\})|nodes|studies|parked)?", link["url"])


def test_what_to_watch_names_panels_that_exist() -> None:
    guide = (ROOT / "docs/guides/what-to-watch.md").read_text()
    named = re.findall(r"\| (\w+): \*\*(.+?)\*\* \|", guide)
    assert len(named) == 10
    titles = {(board, panel["title"]) for board, panel in ALL}
    assert set(named) <= titles
