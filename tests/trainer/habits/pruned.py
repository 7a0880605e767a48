"""Weights are pruned after each epoch, a second optimizer trains the biases every other step."""

import torch
from data import points
from torch import nn
from torch.nn.utils import prune
from torch.utils.data import DataLoader

import drivetrain

with drivetrain.run(seed=6, checkpoint_every_steps=4) as run:
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 2))
    layers = [layer for layer in model if isinstance(layer, nn.Linear)]
    for layer in layers:
        prune.identity(layer, "weight")  # the masks are part of the model before it is resumed
    weights = torch.optim.Adagrad([layer.weight_orig for layer in layers], lr=0.1)
    biases = torch.optim.SGD([layer.bias for layer in layers], lr=0.05)
    run.resume(model=model, weights=weights, biases=biases)
    for epoch in run.epochs(4):
        for x, y in epoch.steps(DataLoader(points(), 8, shuffle=True)):
            loss = nn.functional.cross_entropy(model(x), y)
            model.zero_grad()
            loss.backward()
            weights.step()
            if run.step % 2 == 0:
                biases.step()
            run.log(loss=loss)
        for layer in layers:
            # Not by `layer.weight`, which is of the last forward pass and in no state dict.
            scores = layer.weight_orig * layer.weight_mask
            prune.l1_unstructured(layer, "weight", 0.2, importance_scores=scores)
        run.log(pruned=sum((layer.weight_mask == 0).sum() for layer in layers))
    torch.save(model.state_dict(), "sparse.pt")
