"""Encoder and decoder with an optimizer each; teacher forcing is a matter of chance."""

import random

import torch
from data import text
from torch import nn

import drivetrain

PAIRS = list(zip(text(64).split(4), text(64).flip(0).split(4), strict=True))


def train_one(encoder, decoder, source, target):
    _, hidden = encoder(nn.functional.one_hot(source, 11).float())
    symbol, loss = torch.tensor(0), torch.zeros(())
    is_forced = random.random() < 0.5
    for wanted in target:
        out, hidden = decoder(nn.functional.one_hot(symbol, 11).float()[None], hidden)
        loss = loss + nn.functional.cross_entropy(out[0], wanted)
        symbol = wanted if is_forced else out.argmax()
    return loss / len(target)


with drivetrain.run(max_steps=24, checkpoint_every_steps=5) as run:
    encoder, decoder = nn.GRU(11, 11), nn.GRU(11, 11)
    encoder_optimizer = torch.optim.SGD(encoder.parameters(), lr=0.3)
    decoder_optimizer = torch.optim.SGD(decoder.parameters(), lr=0.3)
    run.resume(enc=encoder, dec=decoder, eo=encoder_optimizer, do=decoder_optimizer)
    for _ in run.steps():
        loss = train_one(encoder, decoder, *random.choice(PAIRS))
        encoder_optimizer.zero_grad()
        decoder_optimizer.zero_grad()
        loss.backward()
        encoder_optimizer.step()
        decoder_optimizer.step()
        run.log(loss=loss)
    torch.save([encoder.state_dict(), decoder.state_dict()], "seq2seq.pt")
