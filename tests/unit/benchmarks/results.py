"""A recorded result to try things with."""

from typing import Any

from benchmarks.recording import Result

FIELDS: dict[str, Any] = {
    "benchmark": "drain",
    "date": "2026-11-22",
    "commit": "7c4dba1e1544a0e2588b76ae2288043c2c0d79f2",
    "is_dirty": False,
    "is_quick": False,
    "digest": "0" * 64,
    "machine": {"cores": 2, "memory_gib": 24, "kernel": "Linux 6.18", "cpu": None},
    "versions": {"Python": "3.11.7"},
    "load": 0.5,
    "rows": [
        {
            "id": "drain.held",
            "what": "slots held",
            "ours": "99.3 %",
            "peer": "100 %",
            "ratio": 0.993,
            "target": "at least 0.95",
            "met": True,
        }
    ],
}


def result(**fields: Any) -> Result:
    return Result.model_validate({**FIELDS, **fields})


def row(**fields: Any) -> dict[str, Any]:
    return {**FIELDS["rows"][0], **fields}
