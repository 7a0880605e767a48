"""Node classification on one graph: every step sees all of it, the accuracy is logged at times."""

import torch
from torch import nn

import drivetrain

torch.manual_seed(72)
EDGES = (torch.rand(20, 20) < 0.2).float() + torch.eye(20)
SPREAD = EDGES / EDGES.sum(1, keepdim=True)
X, Y = torch.randn(20, 5), torch.arange(20) % 3


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = nn.functional.dropout(torch.relu(SPREAD @ self.first(x)), training=self.training)
        return SPREAD @ self.second(h)


with drivetrain.run(max_steps=30, checkpoint_every_steps=7) as run:
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.05, weight_decay=5e-4)
    run.resume(model=model, optimizer=optimizer)
    for epoch in run.steps():
        model.train()
        loss = nn.functional.cross_entropy(model(X)[:12], Y[:12])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(loss=loss)
        if epoch % 5 == 0:
            model.eval()
            run.log(accuracy=(model(X).argmax(1) == Y)[12:].float().mean())
    torch.save(model.state_dict(), "gcn.pt")
