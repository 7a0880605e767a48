"""What the shell offers after Tab: jobs and studies of the platform, and the words of options.

A shell waits for the answer, so it takes a second at most: without a platform, or with a slow one,
nothing is offered and nothing is said.
"""

import os
from collections.abc import Callable, Sequence
from threading import Thread
from typing import Any

from drivetrain.cli.names import JOB, LATEST, STUDY, Kind

SECONDS = 1.0
NUM_OFFERED = 50

JOB_STATES = (
    *("queued", "starting", "running", "preempting", "paused"),
    *("succeeded", "failed", "cancelled", "stopped", "submitted", "rejected"),
)
STUDY_STATES = ("running", "completed", "failed", "cancelled", "submitted", "rejected")

Choice = tuple[str, str]


def jobs(incomplete: str) -> list[Choice]:
    """Names of the newest jobs, or ids where an id is begun."""
    return _within(SECONDS, lambda: _newest(JOB, incomplete))


def studies(incomplete: str) -> list[Choice]:
    """As `jobs`, for studies."""
    return _within(SECONDS, lambda: _newest(STUDY, incomplete))


def job_states(incomplete: str) -> list[str]:
    return [state for state in JOB_STATES if state.startswith(incomplete)]


def study_states(incomplete: str) -> list[str]:
    return [state for state in STUDY_STATES if state.startswith(incomplete)]


def alerts(incomplete: str) -> list[str]:
    from drivetrain_schemas.metrics import AlertKind

    return [name.value for name in AlertKind if name.startswith(incomplete)]


def alerts_or_all(incomplete: str) -> list[str]:
    return [*alerts(incomplete), *(word for word in ("all",) if word.startswith(incomplete))]


def _newest(kind: Kind, incomplete: str) -> list[Choice]:
    from drivetrain.cli.connection import find_connection
    from drivetrain.cli.gateway import Gateway

    gateway = Gateway(find_connection(os.environ))
    items = gateway.get(kind.path, {"limit": NUM_OFFERED}, tries=1)[kind.field]
    return offered(kind, items, incomplete)


def offered(kind: Kind, items: Sequence[Any], incomplete: str) -> list[Choice]:
    """What begins with `incomplete`: each name once, of its newest; ids are offered from `job_` on.

    Names with spaces are left out: shells split them.
    """
    found: dict[str, str] = {}
    if items:
        found[LATEST] = f"the newest {kind.name}"
    by_id = incomplete.startswith(kind.prefix)
    for item in items:
        name = str(item.get("name") or "")
        identifier = str(item[f"{kind.name}_id"])
        if by_id:
            found[identifier] = f"{name or 'unnamed'}, {item['state']}"
        elif name and " " not in name:
            found.setdefault(name, str(item["state"]))
    return [(word, help_) for word, help_ in found.items() if word.startswith(incomplete)]


def _within(seconds: float, find: Callable[[], list[Choice]]) -> list[Choice]:
    """What `find` returns in time; nothing if it fails or is slow."""
    found: list[Choice] = []

    def run() -> None:
        try:
            found.extend(find())
        except Exception:
            return  # there is nowhere to report it: the user is writing a line

    worker = Thread(target=run, daemon=True)
    worker.start()
    worker.join(seconds)
    return [] if worker.is_alive() else found
