"""What lies beside the weights in a folder of Hugging Face's style: card, configuration, history.

In: a job and one of its checkpoints. Out: README.md, trainer_state.json, and of the job's own files
a config.json with what belongs to it.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from drivetrain.cli import amounts, downloads
from drivetrain.cli.exchange import facts
from drivetrain.cli.output import Item
from drivetrain.cli.session import segment

if TYPE_CHECKING:
    from drivetrain.cli.gateway import Gateway

WEIGHTS = "model.safetensors"
# Transformers refuses weights that do not say what wrote them.
WEIGHTS_METADATA = {"format": "pt"}
MAX_POINTS = 1000  # of each series in the history
_CONFIGURATION = "config.json"
_BESIDE = frozenset(
    {
        "generation_config.json",
        "preprocessor_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "special_tokens_map.json",
        "added_tokens.json",
        "vocab.json",
        "vocab.txt",
        "merges.txt",
        "tokenizer.model",
    }
)


def write_beside(directory: Path, gateway: "Gateway", job: Item, checkpoint: Item) -> list[str]:
    """The names of what was written."""
    history = _history(gateway, job, checkpoint)
    (directory / "trainer_state.json").write_text(json.dumps(history, indent=2))
    names = _save_configuration(directory, gateway, job, checkpoint)
    (directory / "README.md").write_text(card(job, checkpoint), encoding="utf-8")
    return ["README.md", "trainer_state.json", *names]


def _save_configuration(
    directory: Path, gateway: "Gateway", job: Item, checkpoint: Item
) -> list[str]:
    """config.json of the highest folder that has one, and the known files beside it."""
    path = f"/v1/jobs/{segment(job['job_id'])}/files"
    query = {"checkpoint": checkpoint["checkpoint_id"]}
    listed = downloads.choose(gateway.get(path, query)["files"], None)
    files = {one["path"]: one for one in listed if one.get("target") is None}
    found = [one for one in files if one.rpartition("/")[2] == _CONFIGURATION]
    if not found:
        return []
    folder = min(found, key=lambda one: (one.count("/"), one)).rpartition("/")[0]
    saved = []
    for name in (_CONFIGURATION, *sorted(_BESIDE)):
        file = files.get(f"{folder}/{name}" if folder else name)
        if file is not None:
            content = {**query, "path": file["path"]}
            downloads.save(gateway, f"{path}/content", content, file, directory / name)
            saved.append(name)
    return saved


def _history(gateway: "Gateway", job: Item, checkpoint: Item) -> dict[str, Any]:
    """As the trainer of Transformers writes it: an entry for each step, up to the checkpoint's."""
    path = f"/v1/jobs/{segment(job['job_id'])}/metrics"
    limits = {"to_step": checkpoint["step"], "max_points": MAX_POINTS}
    series = gateway.get(path, limits)["series"]
    steps: dict[int, dict[str, Any]] = {}
    for name, one in series.items():
        for step, value in zip(one["steps"], one["values"], strict=True):
            steps.setdefault(step, {})[name] = None if isinstance(value, str) else value
    best = job.get("best") or {}
    return {
        "epoch": checkpoint.get("epoch"),
        "global_step": checkpoint["step"],
        "max_steps": facts.spec_of(job).get("max_steps") or checkpoint["step"],
        "best_metric": best.get("value"),
        "log_history": [{**steps[step], "step": step} for step in sorted(steps)],
    }


def card(job: Item, checkpoint: Item) -> str:
    """The model card: facts only."""
    known = facts.tags(job)
    name = _line(job["name"] or job["job_id"])
    rows = {
        "job": job["job_id"],
        "checkpoint": checkpoint["checkpoint_id"],
        "step": f"{checkpoint['step']} of attempt {checkpoint['attempt']}",
        "data": known.get("data"),
        "command": known.get("command"),
        "git commit": known.get("git_commit"),
        "code (SHA-256)": known.get("code_sha256"),
        "seed": known.get("seed"),
        "devices": known.get("devices"),
        "project": known.get("project"),
        "tags": known.get("tags"),
        "charged": amounts.money(job.get("charged_micro_usd")),
        "finished": job.get("finished_at"),
    }
    metrics = {text: _number(value) for text, value in sorted(checkpoint["metrics"].items())}
    sections = [
        "---\nlibrary_name: pytorch\ntags:\n- drivetrain\n---",
        f"# {name}",
        *_section("Metrics at this checkpoint", ("metric", "value"), metrics),
        *_section("Hyperparameters", ("name", "value"), facts.hyperparameters(job)),
        *_section("Training", ("", ""), {text: one for text, one in rows.items() if one}),
        "## Use",
        "```python\nfrom safetensors.torch import load_file\n\n"
        f'model.load_state_dict(load_file("{WEIGHTS}"))\n```',
    ]
    return "\n\n".join(sections) + "\n"


def _section(title: str, names: Sequence[str], rows: Mapping[str, Any]) -> Iterable[str]:
    if not rows:
        return ()
    lines = [f"| {names[0]} | {names[1]} |", "|---|---|"]
    lines += [f"| {_line(name)} | {_line(str(value))} |" for name, value in rows.items()]
    return f"## {title}", "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:.6g}" if math.isfinite(value) else str(value)


def _line(text: str) -> str:
    """As text of a cell: neither columns, nor lines, nor markup of its own."""
    shown = "".join(one if one.isprintable() else " " for one in text)
    for one in "\\`*_<>[]|#":
        shown = shown.replace(one, f"\\{one}")
    return shown
