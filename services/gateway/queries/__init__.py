"""Reads of the read model, one file per subject: one function per statement, rows as dicts.

Each costs what it returns, not what was ever projected (docs/architecture.md, rule 19).
"""

from services.gateway.queries import (
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
    studies,
    timeline,
)

__all__ = [
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
    "studies",
    "timeline",
]
