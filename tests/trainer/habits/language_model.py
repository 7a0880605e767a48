"""A recurrent language model: hidden state carried from batch to batch, clipped gradients, a rate
that falls on a plateau, and an early stop."""

import torch
from data import Kept, text
from torch import nn

import drivetrain

torch.manual_seed(1111)
LENGTH = 10
STREAM = text().view(4, -1).t()  # 100 x 4


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.rnn = nn.LSTM(8, 12, num_layers=2, dropout=0.2)
        self.decoder = nn.Linear(12, 11)

    def forward(self, x, hidden):
        out, hidden = self.rnn(self.embedding(x), hidden)
        return self.decoder(out), hidden


with drivetrain.run(checkpoint_every_steps=4) as run:
    model = Model()
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
    kept = Kept(hidden=None, best=float("inf"), bad=0)
    run.resume(model=model, optimizer=optimizer, plateau=plateau, kept=kept)
    for epoch in run.epochs(5):
        if epoch.position == 0:
            kept.values["hidden"] = None
        model.train()
        for begin in epoch.steps(range(0, 80, LENGTH)):
            hidden = kept.values["hidden"]
            out, hidden = model(STREAM[begin : begin + LENGTH], hidden)
            kept.values["hidden"] = tuple(h.detach() for h in hidden)
            target = STREAM[begin + 1 : begin + LENGTH + 1]
            loss = nn.functional.cross_entropy(out.flatten(0, 1), target.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 0.25)
            optimizer.step()
            run.log(loss=loss)
        model.eval()
        with torch.no_grad():
            out, _ = model(STREAM[80:99], None)
            loss = nn.functional.cross_entropy(out.flatten(0, 1), STREAM[81:].flatten()).item()
        plateau.step(loss)
        run.log(validation_loss=loss, rate=optimizer.param_groups[0]["lr"])
        kept.values["bad"] = 0 if loss < kept.values["best"] else kept.values["bad"] + 1
        kept.values["best"] = min(loss, kept.values["best"])
        if kept.values["bad"] == 3:
            break
    torch.save(model.state_dict(), "lm.pt")
