"""A study as an Optuna storage, a SQLite file that Optuna's own tools open, and back.

In: a study and its trials as the platform shows them. Out: the file; of a file, its finished
trials. A conditional parameter is in the trials that have it, as Optuna expects of a space that is
defined by running it.
"""

import math
import sqlite3
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivetrain.cli.errors import InvalidInput

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial, TrialState

Item = Mapping[str, Any]

MAX_IMPORTED = 1000
# What Optuna has no field for; each is an attribute of the trial where it is known.
_ATTRIBUTES = ("number", "job_id", "why", "parent", "detail", "charged_micro_usd", "safety")
# Of a trial: the constraint, and the attribute with the value. Of a study: the bounds.
_SAFETY = "safety"


def need_optuna() -> None:
    try:
        import optuna
    except ImportError as error:
        raise InvalidInput(
            "Optuna is not installed", fix="pip install 'drivetrain[optuna]'"
        ) from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def address(file: Path) -> str:
    """What Optuna calls the storage."""
    return f"sqlite:///{file}"


def write_storage(file: Path, study: Item, trials: Iterable[Item]) -> int:
    """Write the study into a new file. Returns the number of its trials."""
    import optuna

    spec = study["spec"]
    goals = [spec["job"]["metric"], *(spec.get("objectives") or ())]
    space = distributions(spec["space"])
    storage = optuna.storages.RDBStorage(address(file))
    num = 0
    try:
        written = optuna.create_study(
            storage=storage,
            study_name=study["name"],
            directions=[goal["goal"] for goal in goals],
        )
        written.set_user_attr("metrics", [goal["name"] for goal in goals])
        written.set_user_attr("study_id", study["study_id"])
        written.set_user_attr("sampler", study["sampler"])
        if (safety := spec.get("safety")) is not None:
            written.set_user_attr(_SAFETY, safety)
        for trial in trials:
            constraints = _constraints(trial, safety or {})
            written.add_trial(_frozen(trial, space, len(goals), constraints))
            num += 1
    finally:
        storage.remove_session()
        storage.engine.dispose()
    return num


@dataclass(frozen=True, slots=True)
class Finished:
    """Of a storage: each objective's goal, the finished trials, and how many others it has."""

    goals: tuple[str, ...]
    trials: list["FrozenTrial"]
    num_left_out: int


def read_finished(file: Path, name: str | None) -> Finished:
    """The finished trials of a storage. Raises InvalidInput."""
    if not file.is_file():
        raise InvalidInput(f"cannot read {file}: there is no such file")
    with tempfile.TemporaryDirectory() as directory:
        # Optuna adds its tables to whatever database it opens.
        copy = Path(directory) / "storage.db"
        _copy(file, copy)
        return _read_finished(copy, file, name)


def _copy(file: Path, copy: Path) -> None:
    """With what its journal holds; the file itself stays as it is."""
    try:
        with (
            closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(copy)) as target,
        ):
            source.backup(target)
    except sqlite3.Error as error:
        raise InvalidInput(f"{file} is no Optuna storage (SQLite)") from error


def _read_finished(copy: Path, file: Path, name: str | None) -> Finished:
    import optuna

    try:
        names = optuna.get_all_study_names(address(copy))
    except Exception as error:  # whatever its database raises for a file that is none of it
        raise InvalidInput(f"{file} is no Optuna storage (SQLite)") from error
    if name is None and len(names) == 1:
        (name,) = names
    if name not in names:
        shown = ", ".join(names) or "none"
        raise InvalidInput(f"{file} has the studies: {shown}", fix="choose one with --study-name")
    study = optuna.load_study(study_name=name, storage=address(copy))
    trials = study.trials
    found = [trial for trial in trials if trial.state.name in ("COMPLETE", "FAIL")]
    if not found:
        raise InvalidInput(f"the study {name} of {file} has no finished trial")
    if len(found) > MAX_IMPORTED:
        raise InvalidInput(f"{file} has {len(found):,} finished trials (at most {MAX_IMPORTED:,})")
    goals = tuple(direction.name.lower() for direction in study.directions)
    return Finished(goals, found, len(trials) - len(found))


def first_trials(finished: Finished, spec: Item) -> list[dict[str, Any]]:
    """With these the study begins. Raises InvalidInput where it would rank them otherwise.

    In a study without a safety metric an infeasible trial has no values: it must not win.
    """
    metric = (spec.get("job") or spec).get("metric") or {}
    metrics = [metric, *(spec.get("objectives") or ())]
    goals = tuple(each.get("goal") for each in metrics)
    if goals != finished.goals:
        raise InvalidInput(
            f"the storage's objectives are to {' and '.join(finished.goals)}, "
            f"the study's to {' and '.join(map(str, goals))}",
            fix="give the study the goals of the storage, in their order",
        )
    if spec.get("safety") is None:
        return [_first(trial, has_values=_is_feasible(trial)) for trial in finished.trials]
    if not any(_SAFETY in trial.user_attrs for trial in finished.trials):
        raise InvalidInput(
            "the storage has no values of the safety metric, so none of its trials would be safe",
            fix=f"set the user attribute {_SAFETY} of its trials, or leave safety out: "
            "trials that Optuna calls infeasible are imported as failed",
        )
    return [
        _first(trial, has_values=True) | {"safety": trial.user_attrs.get(_SAFETY)}
        for trial in finished.trials
    ]


def _first(trial: "FrozenTrial", *, has_values: bool) -> dict[str, Any]:
    is_complete = trial.state.name == "COMPLETE" and has_values
    values = {"values": list(trial.values)} if is_complete else {}
    return {"hyperparameters": dict(trial.params), **values}


def _is_feasible(trial: "FrozenTrial") -> bool:
    return all(each <= 0 for each in trial.constraints.values())


def _constraints(trial: Item, safety: Item) -> dict[str, float] | None:
    """By how much it breaks the bounds; 0 or less is feasible. None: nothing is known of it."""
    value = trial.get(_SAFETY)
    low, high = safety.get("min"), safety.get("max")
    if value is None or (low is None and high is None):
        return None if trial.get("is_safe", True) else {_SAFETY: 1.0}
    excesses = [low - value] if low is not None else []
    excesses += [value - high] if high is not None else []
    return {_SAFETY: max(excesses)}


def distributions(space: Item, prefix: str = "") -> dict[str, "BaseDistribution"]:
    """The distribution of each parameter; those of a group are named `group__parameter`."""
    from optuna.distributions import (
        CategoricalDistribution,
        FloatDistribution,
        IntDistribution,
    )

    found: dict[str, BaseDistribution] = {}
    for name, given in space.items():
        match given["type"]:
            case "group":
                found |= distributions(given["parameters"], f"{prefix}{name}__")
            case "uniform":
                log = given.get("log", False)
                found[prefix + name] = FloatDistribution(given["low"], given["high"], log=log)
            case "integer":
                log = given.get("log", False)
                found[prefix + name] = IntDistribution(given["low"], given["high"], log=log)
            case "choice":
                found[prefix + name] = CategoricalDistribution(given["values"])
            case "constant":
                found[prefix + name] = CategoricalDistribution([given["value"]])
    return found


def _frozen(
    trial: Item,
    space: Mapping[str, "BaseDistribution"],
    num_values: int,
    constraints: dict[str, float] | None,
) -> "FrozenTrial":
    from optuna.trial import create_trial

    params = {
        name: _within(value, space[name])
        for name, value in trial["hyperparameters"].items()
        if name in space
    }
    values = trial.get("values") or ([] if trial["value"] is None else [trial["value"]])
    state = _state(trial, is_whole=len(values) == num_values)
    return create_trial(
        state=state,
        values=values if state.name == "COMPLETE" else None,
        params=params,
        distributions={name: space[name] for name in params},
        user_attrs={name: trial[name] for name in _ATTRIBUTES if trial.get(name) is not None},
        intermediate_values={
            rung["step"]: math.nan if rung["value"] is None else rung["value"]
            for rung in trial.get("rungs") or ()
        },
        constraints=constraints,
    )


def _within(value: Any, distribution: "BaseDistribution") -> Any:
    """A point on a log scale may be off its own bound by a rounding."""
    from optuna.distributions import FloatDistribution

    if isinstance(distribution, FloatDistribution):
        return min(max(float(value), distribution.low), distribution.high)
    return value


def _state(trial: Item, *, is_whole: bool) -> "TrialState":
    from optuna.trial import TrialState

    match trial["state"]:
        case "completed":
            return TrialState.COMPLETE if is_whole else TrialState.FAIL
        case "stopped":
            return TrialState.PRUNED
        case "failed":
            return TrialState.FAIL
    return TrialState.RUNNING
