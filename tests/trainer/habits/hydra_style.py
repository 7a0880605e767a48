"""In the style of Hydra: a configuration composed from groups of files and `key=value` arguments.

Each start makes a directory of its own, named by date and time, works in it, and keeps there what
it was configured with and what it logged. (What Hydra itself does is written out below.)
"""

import functools
import logging
import os
import sys
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
import yaml
from data import points
from torch import nn, optim
from torch.utils.data import DataLoader

import drivetrain

HERE = Path(__file__).parent
log = logging.getLogger(__name__)


def compose(folder: Path, overrides: list[str]) -> dict[str, Any]:
    """`config.yaml` with the groups it names; `group=name` chooses, `a.b=1` sets a value."""
    config = yaml.safe_load((folder / "config.yaml").read_text())
    given = dict(override.lstrip("+").split("=", 1) for override in overrides)
    for default in config.pop("defaults"):
        ((group, name),) = default.items()
        chosen = given.pop(group, name)
        config[group] = yaml.safe_load((folder / group / f"{chosen}.yaml").read_text())
    for path, text in given.items():
        *parents, last = path.split(".")
        target = config
        for parent in parents:
            target = target.setdefault(parent, {})
        target[last] = yaml.safe_load(text)
    return config


def main(config_path: str) -> Callable[..., Callable[[], None]]:
    def decorate(train: Callable[[dict[str, Any]], None]) -> Callable[[], None]:
        @functools.wraps(train)
        def start() -> None:
            config = compose(HERE / config_path, sys.argv[1:])
            now = datetime.now().astimezone()
            directory = Path(now.strftime("outputs/%Y-%m-%d/%H-%M-%S.%f")).absolute()
            (directory / ".hydra").mkdir(parents=True)
            (directory / ".hydra" / "config.yaml").write_text(yaml.safe_dump(config))
            (directory / ".hydra" / "overrides.yaml").write_text(yaml.safe_dump(sys.argv[1:]))
            os.chdir(directory)
            logging.basicConfig(filename=f"{Path(__file__).stem}.log", level=logging.INFO)
            train(config)

        return start

    return decorate


@main(config_path="hydra_style")
def train(config: dict[str, Any]) -> None:
    torch.manual_seed(config["seed"])
    with drivetrain.run(checkpoint_every_steps=4) as run:
        model = nn.Sequential(nn.Linear(6, config["model"]["hidden"]), nn.Tanh(), nn.LazyLinear(2))
        model(torch.zeros(1, 6))
        arguments = dict(config["optimizer"])
        optimizer = getattr(optim, arguments.pop("name"))(model.parameters(), **arguments)
        run.resume(model=model, optimizer=optimizer)
        for epoch in run.epochs(config["epochs"]):
            for x, y in epoch.steps(DataLoader(points(), 6, shuffle=True)):
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.log({"train/loss": loss})
            log.info("epoch %d", epoch.index)
    torch.save({"model": model.state_dict(), "config": config}, run.directory / "model.pt")


if __name__ == "__main__":
    train()
