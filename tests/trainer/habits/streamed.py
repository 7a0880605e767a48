"""An iterable data set with a shuffle buffer, divided between its workers."""

import random

import torch
from data import points
from torch import nn
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

import drivetrain


class Buffered(IterableDataset):
    def __iter__(self):
        worker = get_worker_info()
        data, buffer = points(), []
        for index in range(worker.id, len(data), worker.num_workers):
            buffer.append(data[index])
            if len(buffer) == 8:
                yield buffer.pop(random.randrange(8))
        random.shuffle(buffer)
        yield from buffer


with drivetrain.run(max_steps=24, checkpoint_every_steps=5) as run:
    model = nn.Linear(6, 2)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    run.resume(model=model, optimizer=optimizer)
    loader = DataLoader(Buffered(), batch_size=5, num_workers=2, persistent_workers=True)
    for x, y in run.steps(loader):
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        run.log(loss=loss.item())
    torch.save(model, "whole_model.pt")
