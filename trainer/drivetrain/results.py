"""`result.json`: the result of a run, written at its end; searches rank by nothing else."""

import os
import secrets
from pathlib import Path

from drivetrain.messages import MAX_ORDINAL
from drivetrain.samples import LastAndBest
from drivetrain.seeding import Seeds
from drivetrain_schemas.jobs import BestValue, Goal, Result, UsedSeed


def make_result(step: int, last_and_best: LastAndBest, seed: UsedSeed | None = None) -> Result:
    best = None
    if last_and_best.best is not None and last_and_best.metric is not None:
        goal = Goal.MAXIMIZE if last_and_best.is_maximized else Goal.MINIMIZE
        value, at_step = last_and_best.best
        best = BestValue(name=last_and_best.metric, goal=goal, value=value, step=at_step)
    return Result(step=step, metrics=last_and_best.last_values(), best=best, seed=seed)


def used_seed(seeds: Seeds) -> UsedSeed | None:
    """None for a number that JSON does not hold exactly."""
    if not 0 <= seeds.seed <= MAX_ORDINAL:
        return None
    return UsedSeed(number=seeds.seed, by_script=tuple(seeds.by_script))


def write(directory: Path, step: int, last_and_best: LastAndBest, seed: UsedSeed | None) -> None:
    """Rename it into place, so that readers never see part of it."""
    result = make_result(step, last_and_best, seed)
    write_atomically(directory / "result.json", result.model_dump_json())


def write_atomically(path: Path, text: str) -> None:
    # A random name, so that no program in the pod can have put a pipe or a link there.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with temporary.open("x") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
