"""A loop without an end but `break`, random windows of a text, losses estimated on the way."""

import math

import numpy as np
import torch
from data import text
from torch import nn

import drivetrain

width, window, batch_size, warm_up, max_iters, eval_interval = 8, 8, 4, 4, 30, 7
config = {key: value for key, value in globals().items() if isinstance(value, int)}
TEXT = text(200).numpy().astype(np.uint16)
torch.manual_seed(1337)


class Model(nn.Module):
    def __init__(self, width, window) -> None:
        super().__init__()
        self.symbols, self.places = nn.Embedding(11, width), nn.Embedding(window, width)
        self.block = nn.TransformerEncoderLayer(width, 2, 16, 0.1, batch_first=True)
        self.head = nn.Linear(width, 11, bias=False)
        self.head.weight = self.symbols.weight

    def forward(self, x):
        length = x.shape[1]
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        out = self.block(self.symbols(x) + self.places(torch.arange(length)), mask)
        return self.head(out)


def get_batch(part):
    begins = torch.randint(len(part) - config["window"] - 1, (config["batch_size"],))
    rows = np.stack([part[i : i + config["window"] + 1] for i in begins]).astype(np.int64)
    return torch.from_numpy(rows[:, :-1]), torch.from_numpy(rows[:, 1:])


def loss_of(model, part):
    x, y = get_batch(part)
    return nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


with drivetrain.run(checkpoint_every_steps=4) as run:
    model = Model(config["width"], config["window"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, betas=(0.9, 0.95))
    run.resume(model=model, optimizer=optimizer)
    kept = run.state(best=math.inf, best_weights={})
    while True:
        rate = 0.01 * min(1, (run.step + 1) / config["warm_up"])
        for group in optimizer.param_groups:
            group["lr"] = rate
        if run.step % config["eval_interval"] == 0:
            model.eval()
            with torch.no_grad():
                estimate = sum(loss_of(model, TEXT[150:]).item() for _ in range(3)) / 3
            model.train()
            if estimate < kept.best:
                kept.best = estimate
                kept.best_weights = {k: v.clone() for k, v in model.state_dict().items()}
        if run.step >= config["max_iters"]:
            break
        for _ in range(2):
            loss = loss_of(model, TEXT[:150]) / 2
            loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        run.log(loss=2 * loss, rate=rate)
        run.advance()
    torch.save({"model": model.state_dict(), "best": kept.best_weights}, "ckpt.pt")
