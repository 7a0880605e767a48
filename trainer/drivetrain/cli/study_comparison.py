"""`drivetrain study compare`: studies side by side, and which was better after as many trials."""

from collections.abc import Iterable, Sequence
from typing import Annotated, Any

import typer

from drivetrain.cli import amounts, session
from drivetrain.cli.errors import InvalidInput
from drivetrain.cli.names import find_study
from drivetrain.cli.output import Column, Format, Item, text_of, write_list, write_value
from drivetrain.cli.session import STUDY_HELP, OutputOption, example, segment

# The best of the first so many trials is shown.
MARKS = (5, 10, 25, 50, 100, 250, 500, 1000)


def compare(
    studies: Annotated[list[str], typer.Argument(metavar="STUDY...", help=STUDY_HELP)],
    output: OutputOption = Format.TABLE,
) -> None:
    """Compare studies of the same metric: how they searched, what they found, what it cost."""
    if len(studies) < 2:
        raise InvalidInput("one study has nothing to compare with", fix="name two or more")
    found = []
    with session.connect() as gateway:
        for name in studies:
            path = f"/v1/studies/{segment(find_study(gateway, name))}"
            study = gateway.get(path, {"max_trials": 1})
            found.append(summary(study, gateway.pages(f"{path}/trials", "trials")))
    metrics = {(one["metric"], one["goal"]) for one in found}
    if len(metrics) > 1:
        shown = ", ".join(sorted(f"{goal} {metric}" for metric, goal in metrics))
        raise InvalidInput(f"the studies have different metrics: {shown}")
    if output is Format.TABLE:
        write_list(_lines(found), _columns(found), output, "")
    else:
        write_value(found, output)


def summary(study: Item, trials: Iterable[Item]) -> dict[str, Any]:
    """What is compared of one study; `best_after` has the best value of the first trials."""
    better = max if study["goal"] == "maximize" else min
    spec = study["spec"] or {}
    pruner = spec.get("pruner") or {}
    best: float | None = None
    best_after: dict[str, float | None] = {}
    charged = number = 0
    for number, trial in enumerate(trials, start=1):
        charged += trial["charged_micro_usd"]
        value = trial["value"]
        if value is not None and trial["is_safe"]:
            best = value if best is None else better(best, value)
        if number in MARKS:
            best_after[str(number)] = best
    if number:
        best_after[str(number)] = best
    return {
        "study_id": study["study_id"],
        "name": study["name"],
        "state": study["state"],
        "metric": study["metric"],
        "goal": study["goal"],
        "sampler": study["sampler"],
        "pruner": pruner.get("type"),
        "num_trials": number,
        "num_completed": study["num_completed"],
        "num_stopped": study["num_stopped"],
        "num_failed": study["num_failed"],
        "best_value": best,
        "charged_micro_usd": charged,
        "best_after": best_after,
    }


def _lines(found: Sequence[Item]) -> list[Item]:
    """One line per fact, with a value for each study."""
    facts: list[tuple[str, list[str]]] = [
        ("name", [text_of(one["name"]) for one in found]),
        ("state", [one["state"] for one in found]),
        ("sampler", [text_of(one["sampler"]) for one in found]),
        ("pruner", [text_of(one["pruner"]) for one in found]),
        ("trials", [str(one["num_trials"]) for one in found]),
        ("stopped early", [str(one["num_stopped"]) for one in found]),
        ("without a value", [str(one["num_failed"]) for one in found]),
        ("charged", [amounts.money(one["charged_micro_usd"]) for one in found]),
        (f"best {found[0]['metric']}", [text_of(one["best_value"]) for one in found]),
    ]
    marks = sorted({int(mark) for one in found for mark in one["best_after"]})
    facts += [
        (f"  of {mark} trials", [text_of(one["best_after"].get(str(mark))) for one in found])
        for mark in marks
    ]
    return [{"fact": fact, "values": values} for fact, values in facts]


def _columns(found: Sequence[Item]) -> list[Column]:
    def value(at: int) -> Column:
        return Column(found[at]["study_id"], lambda line: str(line["values"][at]), True)

    return [Column("", lambda line: str(line["fact"])), *map(value, range(len(found)))]


def register(app: typer.Typer) -> None:
    """Add this verb to `drivetrain study`."""
    app.command(epilog=example("drivetrain study compare random-search asha-search"))(compare)
