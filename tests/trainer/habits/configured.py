"""A structured configuration, overridden by `key=value` arguments as in Hydra."""

import sys
from dataclasses import dataclass, fields

import torch
from data import points
from torch import nn, optim
from torch.utils.data import DataLoader

import drivetrain


@dataclass
class Config:
    optimizer: str = "SGD"
    rate: float = 0.05
    hidden: int = 8
    epochs: int = 3
    seed: int = 17


def read(arguments: list[str]) -> Config:
    kinds = {field.name: type(field.default) for field in fields(Config)}
    pairs = (argument.split("=", 1) for argument in arguments)
    return Config(**{name: kinds[name](value) for name, value in pairs})


def main(config: Config) -> None:
    torch.manual_seed(config.seed)
    with drivetrain.run(hyperparameters=vars(config), checkpoint_every_steps=4) as run:
        chosen = run.hyperparameters
        model = nn.Sequential(nn.Linear(6, chosen["hidden"]), nn.GELU(), nn.LazyLinear(2))
        model(torch.zeros(1, 6))
        optimizer = getattr(optim, chosen["optimizer"])(model.parameters(), lr=chosen["rate"])
        run.resume(model=model, optimizer=optimizer)
        for epoch in run.epochs(chosen["epochs"]):
            for x, y in epoch.steps(DataLoader(points(), 6, shuffle=True)):
                loss = nn.functional.cross_entropy(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.log({"train/loss": loss})
        torch.save(model.state_dict(), "best.pt")


if __name__ == "__main__":
    main(read(sys.argv[1:]))
