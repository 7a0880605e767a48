"""Every benchmark, and what its module declares: a title, the paths it measures, notes.

A module declares `TITLE`, `MEASURES` and `NOTES` as plain literals. They are read without running
it, because a page or a check must not load torch, browsers and peers.
"""

import ast
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# In the order of the page and of `make bench`.
NAMES = (
    "job_start",
    "sdk_cost",
    "checkpoint_cost",
    "job_files",
    "event_path",
    "rebuild",
    "idle",
    "broker_failover",
    "submissions",
    "drain",
    "scheduler_history",
    "kubernetes_placing",
    "search_scale",
    "search_ask_durable",
    "search_ask",
    "search_quality",
    "search_multifidelity",
    "metrics_ingest",
    "metrics_query",
    "log_ingest",
    "flood",
    "chart_read",
    "ledger",
    "budget_reaction",
    "pages",
)


@dataclass(frozen=True, slots=True)
class Declared:
    """`measures`: the files and folders whose change makes the figures older than the code."""

    name: str
    title: str
    measures: Sequence[str]
    notes: str


def declared(name: str, folder: Path = ROOT / "benchmarks") -> Declared:
    """What this benchmark's module declares."""
    literals: dict[str, Any] = {}
    for statement in ast.parse((folder / f"{name}.py").read_text()).body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            constant = statement.targets[0].id
            if constant in ("TITLE", "MEASURES", "NOTES"):
                literals[constant] = ast.literal_eval(statement.value)
    return Declared(name, literals["TITLE"], literals["MEASURES"], literals["NOTES"].strip())
