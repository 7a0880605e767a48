"""Reads of the read model, one file per subject: one function per statement, rows as dicts.

Each costs what it returns, not what was ever projected (docs/architecture.md, rule 19).
"""

from services.gateway.queries import (
    alerts,
    budgets,
    checkpoints,
    costs,
    descriptions,
    job_list,
    jobs,
    names,
    nodes,
    rejections,
    searches,
    silences,
    studies,
    timeline,
)

__all__ = [
    "alerts",
    "budgets",
    "checkpoints",
    "costs",
    "descriptions",
    "job_list",
    "jobs",
    "names",
    "nodes",
    "rejections",
    "searches",
    "silences",
    "studies",
    "timeline",
]
