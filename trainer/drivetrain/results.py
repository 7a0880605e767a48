"""`result.json`: what a run says of itself at its end, the only thing that a search ranks by."""

import os
import secrets
from pathlib import Path

from drivetrain.samples import LastAndBest
from drivetrain_schemas.jobs import BestValue, Goal, Result


def make_result(step: int, standing: LastAndBest) -> Result:
    best = None
    if standing.best is not None and standing.metric is not None:
        goal = Goal.MAXIMIZE if standing.is_maximized else Goal.MINIMIZE
        value, at_step = standing.best
        best = BestValue(name=standing.metric, goal=goal, value=value, step=at_step)
    return Result(step=step, metrics=standing.last_values(), best=best)


def write(directory: Path, step: int, standing: LastAndBest) -> None:
    """Rename it into place, so that it is never seen half written."""
    write_atomically(directory / "result.json", make_result(step, standing).model_dump_json())


def write_atomically(path: Path, text: str) -> None:
    # A name that no program of the pod can have put a pipe or a link at.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    with temporary.open("x") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
