"""Finds the process of a rank, a child of its pod's shim; the pod's `spec.json` lists the ranks."""

import json
from pathlib import Path


def process_of_rank(attempt: Path, rank: int) -> int | None:
    """The pid of `rank` among the pods of one attempt, or None if it is not running."""
    for pod in sorted(attempt.glob("pod_*")):
        try:
            spec = json.loads((pod / "spec.json").read_text())
            shim = json.loads((pod / "identity.json").read_text())["pid"]
            children = Path(f"/proc/{shim}/task/{shim}/children").read_text().split()
        except (FileNotFoundError, ProcessLookupError):
            continue
        index = rank - spec["first_rank"]
        if 0 <= index < min(spec["num_ranks"], len(children)):
            return int(children[index])
    return None
