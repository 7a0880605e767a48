"""Learning to learn: gradients through the steps of an inner loop, on tasks drawn at random."""

import torch
from torch import nn
from torch.func import functional_call

import drivetrain

torch.manual_seed(64)


def task():
    height, phase = torch.rand(2)
    x = 4 * torch.rand(10, 1) - 2
    return x, (0.5 + height) * torch.sin(x + 3 * phase)


with drivetrain.run(max_steps=18, checkpoint_every_steps=4) as run:
    net = nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    rates = nn.ParameterList(nn.Parameter(torch.tensor(0.1)) for _ in net.parameters())
    optimizer = torch.optim.Adam([*net.parameters(), *rates], lr=0.01)
    run.resume(net=net, rates=rates, optimizer=optimizer)
    for _ in run.steps():
        optimizer.zero_grad()
        for _ in range(2):
            x, y = task()
            weights = dict(net.named_parameters())
            for _ in range(2):
                loss = nn.functional.mse_loss(functional_call(net, weights, (x[:5],)), y[:5])
                slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
                weights = {
                    name: weight - rate * slope
                    for (name, weight), rate, slope in zip(
                        weights.items(), rates, slopes, strict=True
                    )
                }
            loss = nn.functional.mse_loss(functional_call(net, weights, (x[5:],)), y[5:])
            loss.backward()
        optimizer.step()
        run.log(loss=loss)
    torch.save([net.state_dict(), rates.state_dict()], "maml.pt")
