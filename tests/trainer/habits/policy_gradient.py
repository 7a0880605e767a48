"""Policy gradient: an episode per step, actions drawn from a distribution, a running reward."""

import torch
from data import Kept
from torch import nn
from torch.distributions import Categorical

import drivetrain

torch.manual_seed(543)

with drivetrain.run(max_steps=20, checkpoint_every_steps=3) as run:
    policy = nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.4), nn.ReLU(), nn.Linear(8, 2))
    optimizer = torch.optim.Adam(policy.parameters(), lr=0.02)
    kept = Kept(running_reward=0.0)
    run.resume(policy=policy, optimizer=optimizer, kept=kept)
    for _ in run.steps():
        state, log_probabilities, reward = torch.randn(2), [], 0.0
        for _ in range(5):
            chosen = Categorical(logits=policy(state))
            action = chosen.sample()
            log_probabilities.append(chosen.log_prob(action))
            reward += float(action == (state.sum() > 0).long())
            state = torch.randn(2)
        kept.values["running_reward"] = 0.1 * reward + 0.9 * kept.values["running_reward"]
        advantage = reward - kept.values["running_reward"]
        loss = -advantage * torch.stack(log_probabilities).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.log(reward=reward, running_reward=kept.values["running_reward"])
    torch.save(policy.state_dict(), "reinforce.pt")
