"""Q-learning: a replay memory, a target net, chance that fades; the memory is part of the state."""

import math
import random

import torch
from data import Kept
from torch import nn

import drivetrain


def act(net: nn.Module, position: int, step: int) -> int:
    if random.random() < 0.1 + 0.8 * math.exp(-step / 10):
        return random.randrange(2)
    return int(net(torch.tensor([position / 5.0])).argmax())


with drivetrain.run(max_steps=30, checkpoint_every_steps=4) as run:
    policy, target = nn.Linear(1, 2), nn.Linear(1, 2)
    target.load_state_dict(policy.state_dict())
    optimizer = torch.optim.AdamW(policy.parameters(), lr=0.05, amsgrad=True)
    kept = Kept(memory=[], position=0)
    run.resume(policy=policy, target=target, optimizer=optimizer, kept=kept)
    for step in run.steps():
        memory, position = kept.values["memory"], kept.values["position"]
        action = act(policy, position, step)
        following = max(-5, min(5, position + (1 if action else -1)))
        memory.append((position, action, following, float(following == 5)))
        del memory[:-20]
        kept.values["position"] = 0 if following == 5 else following
        rows = random.choices(memory, k=8)
        states, actions, followers, rewards = (
            torch.tensor(part) for part in zip(*rows, strict=True)
        )
        values = policy(states[:, None] / 5).gather(1, actions[:, None])[:, 0]
        with torch.no_grad():
            wanted = rewards + 0.9 * target(followers[:, None] / 5).max(1).values
        loss = nn.functional.smooth_l1_loss(values, wanted)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimizer.step()
        for slow, fast in zip(target.parameters(), policy.parameters(), strict=True):
            slow.data.mul_(0.9).add_(0.1 * fast.data)
        run.log(loss=loss, position=following)
    torch.save(policy.state_dict(), "dqn.pt")
