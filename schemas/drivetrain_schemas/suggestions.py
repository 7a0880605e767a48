"""The field that an unknown key may mean: `comand` is command, `devices` resources.devices."""

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args

from pydantic import BaseModel

MIN_SIMILARITY = 0.6
MIN_PREFIX = 3
# Words of other tools.
_OTHER_WORDS = {
    **dict.fromkeys(("gpu", "gpus", "num_gpus", "nproc_per_node"), "devices"),
    **dict.fromkeys(("cmd", "script", "entrypoint"), "command"),
    "params": "hyperparameters",
    "direction": "goal",
    "trials": "max_trials",
}


def suggest(contract: type[BaseModel], path: Sequence[str]) -> str | None:
    """The dotted path of the known field that `path`, which ends with an unknown one, may mean."""
    *parents, unknown = path
    models: list[type[BaseModel]] = [contract]
    for part in parents:
        inner = [
            model
            for outer in models
            if part in outer.model_fields
            for model in _models(outer.model_fields[part].annotation)
        ]
        # A key of a mapping or a place in a list: its values were found one step before.
        models = inner or models
    known = dict(_known(models))
    found = _closest(unknown, known)
    return ".".join((*parents, found)) if found else None


def _closest(unknown: str, known: dict[str, str]) -> str | None:
    """`known`: the path of every field here and one level below, by its own name."""
    word = unknown.lower().replace("-", "_")
    word = _OTHER_WORDS.get(word, word)
    if word in known:
        return known[word]
    close = get_close_matches(word, known, 1, MIN_SIMILARITY)
    if not close and len(word) >= MIN_PREFIX:
        close = [name for name in known if name.startswith(word)][:1]
    return known[close[0]] if close else None


def _known(models: Sequence[type[BaseModel]]) -> Iterator[tuple[str, str]]:
    """Fields one level below first, so that those here count where both have the name."""
    for model in models:
        for name, field in model.model_fields.items():
            for inner in _models(field.annotation, within_collections=False):
                yield from ((below, f"{name}.{below}") for below in inner.model_fields)
    for model in models:
        yield from ((name, name) for name in model.model_fields)


def _models(annotation: Any, *, within_collections: bool = True) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif within_collections or getattr(annotation, "__origin__", None) not in (dict, tuple, list):
        for argument in get_args(annotation):
            yield from _models(argument, within_collections=within_collections)
