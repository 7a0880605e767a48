"""Two students teach each other; schedules are chained; a metric object is kept over the run."""

import torch
from data import points
from torch import nn
from torch.nn.functional import cross_entropy, kl_div
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader

import drivetrain


class Confusion:
    def __init__(self) -> None:
        self.counts = torch.zeros(2, 2, dtype=torch.long)

    def update(self, out, y):
        self.counts += torch.bincount(2 * y + out.argmax(1), minlength=4).view(2, 2)

    def state_dict(self):
        return {"counts": self.counts}

    def load_state_dict(self, state):
        self.counts = state["counts"]


def chained(optimizer):
    exponential = lr_scheduler.ExponentialLR(optimizer, 0.98)
    return lr_scheduler.ChainedScheduler([exponential, lr_scheduler.StepLR(optimizer, 8, 0.5)])


with drivetrain.run(max_steps=26, checkpoint_every_steps=5) as run:
    students = nn.ModuleDict({name: nn.Linear(6, 2) for name in ("first", "second")})
    optimizers = [torch.optim.SGD(net.parameters(), lr=0.1) for net in students.values()]
    schedules = [chained(optimizer) for optimizer in optimizers]
    confusion = Confusion()
    names = {f"{i}": thing for i, thing in enumerate([*optimizers, *schedules])}
    run.resume(students=students, confusion=confusion, **names)
    for x, y in run.steps(DataLoader(points(), 8, shuffle=True)):
        outs = [net(nn.functional.dropout(x, 0.2)) for net in students.values()]
        for i, optimizer in enumerate(optimizers):
            other = outs[1 - i].detach().softmax(1)
            near = kl_div(outs[i].log_softmax(1), other, reduction="batchmean")
            optimizer.zero_grad()
            (cross_entropy(outs[i], y) + near).backward()
            optimizer.step()
            schedules[i].step()
        confusion.update(outs[0], y)
        run.log(near=near, right=confusion.counts.diag().sum(), rate=schedules[0].get_last_lr()[0])
    torch.save([students.state_dict(), confusion.counts], "mutual.pt")
