"""What a repetition of a job would have in common with it, and what differs. Pure.

In: specs and surroundings (drivetrain_schemas.descriptions) as plain JSON. Out: the spec of the
repetition, and differences in words.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from services.gateway.core.comparison import NOT_RECORDED
from services.gateway.core.descriptions import hyperparameters

Json = Mapping[str, Any]

_COMPARED = {
    "python": "Python",
    "platform": "operating system",
    "device_type": "device type",
    "device_name": "device",
    "world_size": "number of ranks",
    "seed": "seed",
    "entry_point": "entry point",
    "arguments": "arguments",
}
_UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Difference:
    """`was`: of the job that is repeated; `now`: of its repetition, or what would be now."""

    what: str
    was: str
    now: str


@dataclass(frozen=True, slots=True)
class Present:
    """What there is now. None: not known."""

    has_code: bool | None
    device_types: Collection[str]


def seed_of(spec: Json, result: Json | None, surroundings: Json | None) -> int | None:
    """The seed that decided the order of the data."""
    used = (result or {}).get("seed") or {}
    for seed in (spec.get("seed"), used.get("number"), (surroundings or {}).get("seed")):
        if seed is not None:
            return int(seed)
    return None


def repeated(job_id: str, spec: Json, seed: int | None) -> dict[str, Any]:
    """The spec of a repetition: the same code, seed and everything else."""
    return {**spec, "seed": seed, "rerun_of": job_id}


def would_differ(
    spec: Json, surroundings: Json | None, seed: int | None, present: Present
) -> Iterator[Difference]:
    """What is known before the repetition runs."""
    if present.has_code is False:
        yield Difference("code", "uploaded", "no longer stored: a repetition cannot start")
    if spec.get("code") is None and spec.get("image") is None:
        yield Difference("code", "none was sent", "whatever the command finds on the machine")
    if seed is None or seed >= 2**31:
        yield Difference("seed", _text(seed), "the program chooses")
    said = surroundings or {}
    pool = (spec.get("resources") or {}).get("pool")
    wanted = (spec.get("resources") or {}).get("device_type")
    was = said.get("device_type")
    types = sorted(present.device_types)
    if was is not None and was not in types:
        yield Difference("device type", was, ", ".join(types) or f"no node in pool {pool}")
    elif was is not None and wanted is None and len(types) > 1:
        yield Difference("device type", was, f"one of {', '.join(types)}")
    if not surroundings:
        yield Difference("packages", _UNKNOWN, "the program has not recorded them")
    if (spec.get("start_from") or {}).get("checkpoint") == "newest":
        yield Difference("start", "the newest checkpoint then", "the newest checkpoint now")
    for data in said.get("data") or ():
        if not data.get("checksum"):
            name = data["uri"] + (f" {data['version']}" if data.get("version") else "")
            yield Difference("data", name, "not checked: it is read from its own place")
    if spec.get("data") and not said.get("data"):
        yield Difference("data", spec["data"], "not checked: the program has recorded no version")


def has_differed(original: Json | None, repetition: Json | None) -> list[Difference]:
    """Between a job and a repetition of it that has run."""
    if not original or not repetition:
        return []
    found = [
        Difference(words, _text(original.get(name)), _text(repetition.get(name)))
        for name, words in _COMPARED.items()
        if original.get(name) != repetition.get(name)
    ]
    for what, of in (("", _packages), ("data ", _data), ("hyperparameter ", _hyperparameters)):
        was, now = of(original), of(repetition)
        found += [
            Difference(f"{what}{name}", was.get(name, "none"), now.get(name, "none"))
            for name in sorted(was.keys() | now.keys())
            if was.get(name) != now.get(name)
        ]
    return found


def compared(spec: Json, surroundings: Json | None, said: Json) -> dict[str, Any]:
    """A job for a comparison: its spec, what was said of it, and its surroundings."""
    source = {key: value for key, value in (spec.get("source") or {}).items() if key != "diff"}
    environment = dict.fromkeys(spec.get("environment") or {}, "given")
    merged: dict[str, Any] = {**spec, **said, "source": source, "environment": environment}
    merged["hyperparameters"] = hyperparameters(spec, surroundings)
    merged["surroundings"] = "recorded" if surroundings else None
    merged |= dict.fromkeys(("runs on", "package", "data used"), NOT_RECORDED)
    if surroundings:
        names = ("python", "device_type", "device_name", "world_size")
        merged["runs on"] = {name: surroundings.get(name) for name in names}
        merged["package"] = _packages(surroundings)
        merged["data used"] = _data(surroundings)
    return merged


def _packages(surroundings: Json) -> dict[str, str]:
    return {one["name"]: one["version"] for one in surroundings.get("packages") or ()}


def _hyperparameters(surroundings: Json) -> dict[str, str]:
    return {name: _text(value) for name, value in hyperparameters(None, surroundings).items()}


def _data(surroundings: Json) -> dict[str, str]:
    return {
        one["uri"]: " ".join(filter(None, (one.get("version"), one.get("checksum")))) or _UNKNOWN
        for one in surroundings.get("data") or ()
    }


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " ".join(map(str, value)) or "none"
    return _UNKNOWN if value is None else str(value)
