"""A denoising autoencoder: the decoder has the encoder's weights, normalized."""

import torch
from data import points
from torch import nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.data import DataLoader

import drivetrain

torch.manual_seed(21)


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encode = weight_norm(nn.Linear(6, 4))
        self.again = self.encode  # the same module under two names
        self.bias = nn.Parameter(torch.zeros(6))
        self.register_buffer("seen", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.seen += len(x)
        return nn.functional.linear(torch.tanh(self.encode(x)), self.again.weight.t(), self.bias)


with drivetrain.run(checkpoint_every_steps=5) as run:
    model = Autoencoder()
    optimizer = torch.optim.Rprop(model.parameters(), lr=0.01)
    run.resume(model=model, optimizer=optimizer)
    for epoch in run.epochs(4):
        for x, _ in epoch.steps(DataLoader(points(), 8, shuffle=True)):
            noisy = nn.functional.dropout(x, 0.3) + 0.1 * torch.randn_like(x)
            loss = nn.functional.mse_loss(model(noisy), x)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss, seen=model.seen)
    torch.save(model.state_dict(), "autoencoder.pt")
