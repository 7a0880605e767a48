"""A variational autoencoder with functions train(epoch) and test(epoch), and samples at the end."""

import argparse

import torch
from data import points
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader

import drivetrain

parser = argparse.ArgumentParser(description="VAE")
parser.add_argument("--epochs", type=int, default=4)
parser.add_argument("--batch-size", type=int, default=12)
parser.add_argument("--seed", type=int, default=1)
args = parser.parse_args()
torch.manual_seed(args.seed)


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.mean, self.variance = nn.Linear(6, 8), nn.Linear(8, 2), nn.Linear(8, 2)
        self.decode = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 6))

    def forward(self, x):
        h = F.relu(self.hidden(x))
        mean, log_variance = self.mean(h), self.variance(h)
        z = mean + torch.randn_like(mean) * torch.exp(0.5 * log_variance)
        return self.decode(z), mean, log_variance


def loss_of(out, x, mean, log_variance):
    divergence = -0.5 * torch.sum(1 + log_variance - mean**2 - log_variance.exp())
    return F.mse_loss(out, x, reduction="sum") + divergence


with drivetrain.run(checkpoint_every_steps=3) as run:
    model = VAE().to(run.device)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    train_loader = DataLoader(points(), args.batch_size, shuffle=True)
    test_loader = DataLoader(points(20), args.batch_size)
    run.resume(model=model, optimizer=optimizer)
    for epoch in run.epochs(args.epochs):
        model.train()
        for x, _ in epoch.steps(train_loader):
            optimizer.zero_grad()
            out, mean, log_variance = model(x)
            loss = loss_of(out, x, mean, log_variance)
            loss.backward()
            optimizer.step()
            run.log(loss=loss / len(x))
        model.eval()
        with torch.no_grad():
            for x, _ in test_loader:
                out, mean, log_variance = model(x)
                run.log(test_loss=loss_of(out, x, mean, log_variance) / len(x))
    torch.save((model.state_dict(), model.decode(torch.randn(4, 2)).detach()), "vae.pt")
