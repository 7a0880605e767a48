"""Studies that cannot be searched, each with the field that says why: refused at every door."""

from typing import Any

RATE = {"type": "uniform", "low": 0.001, "high": 0.1}
WIDTH = {"type": "integer", "low": 1, "high": 64}

# Name -> (what is changed in a valid study, the field of its error).
BAD_STUDIES: dict[str, tuple[dict[str, Any], str]] = {
    "a reversed range": ({"space": {"lr": {**RATE, "high": 0.0001}}}, "space.lr.high"),
    "an empty range": ({"space": {"width": {**WIDTH, "high": 1}}}, "space.width.high"),
    "the log of zero": ({"space": {"lr": {**RATE, "low": 0.0, "log": True}}}, "space.lr.low"),
    "no values": ({"space": {"kind": {"type": "choice", "values": []}}}, "space.kind.values"),
    "no parameters": ({"space": {}}, "space"),
    "a condition on nothing": (
        {"space": {"lr": {**RATE, "when": {"kind": ["sgd"]}}}},
        "space.lr.when.kind",
    ),
    "a cycle": ({"space": {"width": {**WIDTH, "when": {"width": [1]}}}}, "space.width.when"),
    "a constraint on nothing": (
        {"space": {"lr": RATE}, "constraints": ["lr * width < 1"]},
        "constraints.0",
    ),
    "text compared with a number": (
        {"space": {"kind": {"type": "choice", "values": ["sgd"]}}, "constraints": ["kind < 1"]},
        "constraints.0",
    ),
    "a program as a constraint": (
        {"space": {"lr": RATE}, "constraints": ["__import__('os').system('true')"]},
        "constraints.0",
    ),
    "a grid of a million points": (
        {
            "space": {f"lr{n}": {**RATE, "num": 100} for n in range(3)},
            "sampler": "grid",
            "max_trials": None,
        },
        "space",
    ),
    "no trials": ({"max_trials": 0}, "max_trials"),
    "no trials at a time": ({"max_parallel_trials": 0}, "max_parallel_trials"),
    "no money": ({"limits": {"cost_usd": 0.0}}, "limits.cost_usd"),
    "no time": ({"limits": {"device_hours": 0.0}}, "limits.device_hours"),
    "an unsafe limit": ({"safety": {"metric": "memory"}}, "safety"),
    "an objective twice": (
        {"objectives": [{"name": "loss", "goal": "minimize"}]},
        "objectives.0.name",
    ),
}
