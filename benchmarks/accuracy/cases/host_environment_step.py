# truth: host/python-in-step | input/slow-sample | input/single-process
# bottleneck: host | input
# line: Categorical|def step|position|velocity|force|for |math
"""Policy gradient: a pure-Python environment is rolled out before each update."""
import math
import random

import torch
from torch import nn
from torch.distributions import Categorical


class Chain:
    """Forty coupled pendulums, one of them driven."""

    def reset(self):
        self.position = [random.uniform(-0.1, 0.1) for _ in range(40)]
        self.velocity = [0.0] * 40
        return self.position[:8]

    def step(self, action):
        for _ in range(4):
            for i in range(40):
                left = self.position[i - 1] if i else 0.0
                right = self.position[i + 1] if i < 39 else 0.0
                force = -math.sin(self.position[i]) + 4 * (left + right - 2 * self.position[i])
                if i == 0:
                    force += action - 1
                self.velocity[i] += 0.01 * force
            for i in range(40):
                self.position[i] += 0.01 * self.velocity[i]
        return self.position[:8], -abs(self.position[39])


def main():
    random.seed(0)
    torch.manual_seed(0)
    policy = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 3))
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    env = Chain()
    for episode in range(120):
        state = env.reset()
        states, actions, rewards = [], [], []
        for _ in range(100):
            with torch.no_grad():
                action = Categorical(logits=policy(torch.tensor(state))).sample().item()
            states.append(state)
            actions.append(action)
            state, reward = env.step(action)
            rewards.append(reward)
        returns = torch.tensor(rewards).flip(0).cumsum(0).flip(0)
        returns = (returns - returns.mean()) / (returns.std() + 1e-6)
        dist = Categorical(logits=policy(torch.tensor(states)))
        loss = -(dist.log_prob(torch.tensor(actions)) * returns).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if episode % 20 == 0:
            print(episode, sum(rewards))


if __name__ == "__main__":
    main()
