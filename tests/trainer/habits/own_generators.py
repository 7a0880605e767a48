"""A class with generators of its own, for the order of the data and for noise, which it keeps."""

import numpy as np
import torch
from data import points
from torch import nn

import drivetrain


class Estimator:
    def __init__(self, seed) -> None:
        self.order = np.random.default_rng(seed)
        self.noise = torch.Generator().manual_seed(seed)
        self.model = nn.Linear(6, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def state_dict(self):
        return {"order": self.order.bit_generator.state, "noise": self.noise.get_state()}

    def load_state_dict(self, state):
        self.order.bit_generator.state = state["order"]
        self.noise.set_state(state["noise"])

    def fit(self, x, y):
        run.resume(model=self.model, optimizer=self.optimizer, generators=self)
        for _ in run.steps():
            rows = self.order.choice(len(x), 8, replace=False)
            noise = 0.1 * torch.randn(8, 6, generator=self.noise)
            loss = nn.functional.cross_entropy(self.model(x[rows] + noise), y[rows])
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            run.log(loss=loss)


with drivetrain.run(max_steps=25, checkpoint_every_steps=4) as run:
    estimator = Estimator(seed=7)
    estimator.fit(*points().tensors)
    torch.save(estimator.model.state_dict(), "model.pt")
