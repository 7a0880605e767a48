"""The critic takes three steps for one of the generator; a penalty on its gradient."""

import torch
from data import points
from torch import nn

import drivetrain

torch.manual_seed(77)
X, _ = points().tensors


def penalty(critic, real, fake):
    share = torch.rand(len(real), 1)
    between = (share * real + (1 - share) * fake).requires_grad_()
    (slope,) = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
    return (slope.norm(dim=1) - 1).square().mean()


with drivetrain.run(max_steps=10, checkpoint_every_steps=2) as run:
    generator = nn.Sequential(nn.Linear(3, 8), nn.Softplus(), nn.Linear(8, 6))
    critic = nn.Sequential(nn.Linear(6, 8), nn.Softplus(), nn.Linear(8, 1))
    g = torch.optim.RMSprop(generator.parameters(), lr=5e-3, centered=True)
    c = torch.optim.RMSprop(critic.parameters(), lr=5e-3)
    run.resume(generator=generator, critic=critic, g=g, c=c)
    while run.step < run.max_steps:
        for _ in range(3):
            real, fake = X[torch.randint(len(X), (8,))], generator(torch.randn(8, 3)).detach()
            distance = critic(fake).mean() - critic(real).mean()
            c.zero_grad()
            (distance + 10 * penalty(critic, real, fake)).backward()
            c.step()
        g.zero_grad()
        loss = -critic(generator(torch.randn(8, 3))).mean()
        loss.backward()
        g.step()
        run.log(distance=distance, loss=loss)
        run.advance()
    torch.save([generator.state_dict(), critic.state_dict()], "wgan.pt")
