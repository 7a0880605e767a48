"""The directory of a local run: the newest one that this experiment can continue, else a new one.

Input: what identifies the experiment. A run is continued only by the same script with the same
arguments, hyperparameters and seed; they are kept in its directory. Runs that are complete, or that
another process holds, are not continued.
"""

import fcntl
import json
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain import started
from drivetrain.results import write_atomically

_IDENTITY = "experiment.json"
_taken: dict[Path, int] = {}  # open locks; closing one releases it
_logger = logging.getLogger("drivetrain")


@dataclass(frozen=True, slots=True)
class Experiment:
    """What a local run does. `script` is relative to the directory that it was started in."""

    script: str
    arguments: tuple[str, ...] = ()
    hyperparameters: Mapping[str, Any] | None = None
    seed: int | None = None

    def to_json(self) -> dict[str, Any]:
        own = {
            "script": self.script,
            "arguments": self.arguments,
            "hyperparameters": dict(self.hyperparameters or {}),
            "seed": self.seed,
        }
        document: dict[str, Any] = json.loads(json.dumps(own))
        return document


def this_experiment(hyperparameters: Mapping[str, Any], seed: int | None) -> Experiment:
    is_script = sys.argv[0] not in ("", "-c") and "ipykernel" not in sys.modules
    return Experiment(
        script=started.relative(sys.argv[0]) if is_script else "interactive",
        arguments=tuple(sys.argv[1:]) if is_script else (),  # of a notebook: its kernel's
        hyperparameters=hyperparameters,
        seed=seed,
    )


def choose_directory(root: Path, experiment: Experiment) -> Path:
    """This process holds the directory until it exits."""
    parent = root / (Path(experiment.script).stem or "interactive")
    numbers = sorted(int(path.name) for path in parent.glob("*") if path.name.isdigit())
    for number in reversed(numbers):
        directory = (parent / str(number)).absolute()
        if _is_complete(directory):
            break
        if difference := _first_difference(directory, experiment):
            _logger.info("%s is not continued: it has %s", directory, difference)
        elif _take(directory):
            _identify(directory, experiment)
            return directory
    number = numbers[-1] if numbers else 0
    while True:
        number += 1
        directory = (parent / str(number)).absolute()
        if not _is_complete(directory) and _take(directory):
            _identify(directory, experiment)
            return directory


def _identify(directory: Path, experiment: Experiment) -> None:
    if not (directory / _IDENTITY).exists():
        write_atomically(directory / _IDENTITY, json.dumps(experiment.to_json(), indent=1))


def _first_difference(directory: Path, experiment: Experiment) -> str | None:
    """What is different in the experiment of this directory; None if it is the same."""
    try:
        theirs = json.loads((directory / _IDENTITY).read_text())
    except FileNotFoundError:
        return None  # it has only just begun
    except ValueError:
        return f"an unreadable {_IDENTITY}"
    return next(_differences(theirs, experiment.to_json(), ""), None)


def _differences(theirs: Any, ours: Any, name: str) -> Iterator[str]:
    if not (isinstance(theirs, dict) and isinstance(ours, dict)):
        if theirs != ours:
            yield f"{name} {theirs!r}, this one {ours!r}"
        return
    for key in (*ours, *(key for key in theirs if key not in ours)):
        yield from _differences(
            theirs.get(key), ours.get(key), key if not name else f"{name}.{key}"
        )


def _is_complete(directory: Path) -> bool:
    return (directory / "result.json").exists()


def _take(directory: Path) -> bool:
    """False if another process holds it."""
    if directory in _taken:
        return True
    directory.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(directory / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # lockf belongs to this process only; workers that survive a killed run would keep an flock.
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        os.close(descriptor)
        return False
    _taken[directory] = descriptor
    return True
