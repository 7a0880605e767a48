"""What the files of a directory say about the job that they make: sources in, findings out. Pure.

Only read, never run: names, literals and calls of the Python sources.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_USUAL_NAMES = ("train", "main", "run", "trainer", "finetune", "pretrain")
_LIBRARIES = frozenset({"torch", "drivetrain", "lightning", "transformers", "jax", "tensorflow"})
_UPWARD = re.compile(r"acc|auc|f1|bleu|score|reward|return|precision|recall|iou|map", re.I)
_JUDGED = re.compile(r"(?:^|_|/)(?:val|valid|validation|eval|test)(?:_|/|$)", re.I)

Scalar = bool | int | float | str


@dataclass(frozen=True, slots=True)
class Script:
    """A program of the directory.

    `max_steps` and `hyperparameters`: as it gives them to `drivetrain.run`. `says_when_to_save`:
    whether it does so there. `metrics`: the names that it logs.
    """

    name: str
    is_program: bool = False
    libraries: frozenset[str] = frozenset()
    max_steps: int | None = None
    says_when_to_save: bool = False
    hyperparameters: Mapping[str, Scalar] = field(default_factory=dict)
    metrics: tuple[str, ...] = ()

    @property
    def uses_drivetrain(self) -> bool:
        return "drivetrain" in self.libraries

    @property
    def metric(self) -> tuple[str, str] | None:
        """The metric that probably judges it, and the goal."""
        judged = [name for name in self.metrics if _JUDGED.search(name)]
        chosen = next((name for name in judged if _UPWARD.search(name)), None)
        chosen = chosen or next(iter(judged or self.metrics), None)
        if chosen is None:
            return None
        return chosen, "maximize" if _UPWARD.search(chosen) else "minimize"


def look(name: str, source: str) -> Script:
    """What one source says; nothing if it is not Python."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError):
        return Script(name)
    max_steps: int | None = None
    says_when_to_save = False
    hyperparameters: dict[str, Scalar] = {}
    metrics: dict[str, None] = {}
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        given = {word.arg: word.value for word in call.keywords if word.arg}
        if _called(call) == "run":
            steps = _literal(given.get("max_steps"))
            max_steps = steps if isinstance(steps, int) and steps > 0 else max_steps
            says_when_to_save |= any(name.startswith("checkpoint_every_") for name in given)
            hyperparameters |= dict(_scalars(given.get("hyperparameters")))
        elif _called(call) == "log":
            metrics |= dict.fromkeys(given)
    return Script(
        name,
        is_program=any(_is_main(node) for node in tree.body),
        libraries=frozenset(_imported(tree)) & _LIBRARIES,
        max_steps=max_steps,
        says_when_to_save=says_when_to_save,
        hyperparameters=hyperparameters,
        metrics=tuple(metrics),
    )


def rank(scripts: list[Script]) -> list[Script]:
    """The programs, the most probable first: what trains, under a usual name."""

    def key(script: Script) -> tuple[bool, bool, bool, int, str]:
        stem = Path(script.name).stem
        usual = _USUAL_NAMES.index(stem) if stem in _USUAL_NAMES else len(_USUAL_NAMES)
        is_test = stem.startswith("test_") or stem in ("setup", "conftest", "__init__")
        return (is_test, not script.uses_drivetrain, not script.libraries, usual, script.name)

    likely = [one for one in scripts if one.is_program or one.libraries]
    return sorted(likely or scripts, key=key)


def is_usual(name: str) -> bool:
    return Path(name).stem in _USUAL_NAMES


def _called(call: ast.Call) -> str:
    """`run` of `drivetrain.run(...)`, `log` of `run.log(...)`."""
    called = call.func
    if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name):
        if called.attr == "run" and called.value.id == "drivetrain":
            return "run"
        if called.attr == "log" and called.value.id != "self":  # Lightning's, with its options
            return "log"
    return ""


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]


def _is_main(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "__name__" in ast.unparse(node.test)


def _scalars(node: ast.expr | None) -> Iterator[tuple[str, Scalar]]:
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            name, scalar = _literal(key), _literal(value)
            if isinstance(name, str) and isinstance(scalar, bool | int | float | str):
                yield name, scalar


def _literal(node: ast.expr | None) -> object:
    try:
        return None if node is None else ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return None
