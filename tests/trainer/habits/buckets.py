"""Sequences of several lengths, padded and packed; a batch sampler of one's own makes buckets."""

import random

import torch
from data import text
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader, Sampler

import drivetrain

random.seed(3)
SYMBOLS = text(300)
SENTENCES = [SYMBOLS[i : i + random.randint(3, 9)] for i in range(0, 280, 7)]


class Buckets(Sampler):
    def __iter__(self):
        order = sorted(range(len(SENTENCES)), key=lambda i: (len(SENTENCES[i]), random.random()))
        batches = [order[i : i + 5] for i in range(0, len(order), 5)]
        random.shuffle(batches)
        yield from batches

    def __len__(self):
        return len(SENTENCES) // 5


def collate(sentences):
    lengths = torch.tensor([len(sentence) for sentence in sentences])
    return pad_sequence(sentences), lengths, torch.stack([s.sum() % 2 for s in sentences])


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.rnn, self.out = nn.Embedding(11, 6), nn.GRU(6, 8), nn.Linear(8, 2)

    def forward(self, symbols, lengths):
        packed = pack_padded_sequence(self.embed(symbols), lengths, enforce_sorted=False)
        return self.out(self.rnn(packed)[1][0])


with drivetrain.run(checkpoint_every_steps=3) as run:
    model = Classifier()
    optimizer = torch.optim.RAdam(model.parameters(), lr=0.02)
    run.resume(model=model, optimizer=optimizer)
    loader = DataLoader(SENTENCES, batch_sampler=Buckets(), collate_fn=collate)
    for epoch in run.epochs(3):
        for symbols, lengths, label in epoch.steps(loader):
            loss = nn.functional.cross_entropy(model(symbols, lengths), label)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            run.log(loss=loss, longest=lengths.max())
    torch.save(model.state_dict(), "classifier.pt")
