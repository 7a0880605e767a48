"""Half of the labels: a teacher that follows the student, with a weight that grows by the step."""

import copy
import math

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader

import drivetrain

with drivetrain.run(max_steps=24, checkpoint_every_steps=5) as run:
    student = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))
    teacher = copy.deepcopy(student)
    optimizer = torch.optim.SGD(student.parameters(), lr=0.1, momentum=0.9)
    run.resume(student=student, teacher=teacher, optimizer=optimizer)
    for x, y in run.steps(DataLoader(points(), 8, shuffle=True)):
        out = student(x + 0.1 * torch.randn_like(x))
        with torch.no_grad():
            wanted = teacher(x + 0.1 * torch.randn_like(x)).softmax(1)
        y = y.masked_fill(torch.rand(len(y)) < 0.5, -100)
        weight = math.exp(-5 * (1 - min(1, run.step / 12)) ** 2)
        consistency = nn.functional.mse_loss(out.softmax(1), wanted)
        loss = nn.functional.cross_entropy(out, y, reduction="sum") / 8 + weight * consistency
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(teacher.parameters(), student.parameters(), strict=True):
                slow.mul_(0.95).add_(fast, alpha=0.05)
        run.log(loss=loss, consistency=consistency, weight=weight)
    torch.save(teacher.state_dict(), "teacher.pt")
