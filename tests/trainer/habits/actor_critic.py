"""Actor and critic learn from rollouts, several passes over each; the last returns in a deque."""

from collections import deque

import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical

import drivetrain

np.random.seed(4)

with drivetrain.run(max_steps=12, checkpoint_every_steps=2) as run:
    actor, critic = nn.Linear(2, 2), nn.Linear(2, 1)
    for_actor = torch.optim.Adam(actor.parameters(), lr=0.02)
    for_critic = torch.optim.RMSprop(critic.parameters(), lr=0.02)
    run.resume(actor=actor, critic=critic, for_actor=for_actor, for_critic=for_critic)
    kept = run.state(returns=deque(maxlen=5), observation=np.zeros(2, dtype=np.float32))
    while run.step < run.max_steps:
        states, actions, rewards, before = [], [], [], []
        for _ in range(8):
            state = torch.from_numpy(kept.observation.copy())
            chosen = Categorical(logits=actor(state).detach())
            action = chosen.sample()
            states.append(state)
            actions.append(action)
            before.append(chosen.log_prob(action))
            drift = np.random.normal(scale=0.1, size=2).astype(np.float32)
            kept.observation = 0.9 * kept.observation + drift + 0.1 * (2 * action.item() - 1)
            rewards.append(-float(np.abs(kept.observation).sum()))
        states, actions, before = map(torch.stack, (states, actions, before))
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        for rows in [order for _ in range(2) for order in torch.randperm(8).split(4)]:
            advantage = returns[rows] - critic(states[rows])[:, 0]
            ratio = (
                Categorical(logits=actor(states[rows])).log_prob(actions[rows]) - before[rows]
            ).exp()
            clipped = ratio.clamp(0.8, 1.2) * advantage.detach()
            policy_loss = -torch.min(ratio * advantage.detach(), clipped).mean()
            for optimizer, loss in (
                (for_actor, policy_loss),
                (for_critic, advantage.pow(2).mean()),
            ):
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        kept.returns.append(sum(rewards))
        run.log(mean_return=sum(kept.returns) / len(kept.returns))
        run.advance()
    torch.save([actor.state_dict(), critic.state_dict(), list(kept.returns)], "ppo.pt")
