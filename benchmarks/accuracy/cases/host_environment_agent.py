# truth: input/slow-sample | host/python-in-step
# bottleneck: input | host
# line: Categorical|def step|self\.pos|self\.vel|left|right|f = |for i
# not: input/single-process
"""Actor-critic in classes: a trainer collects 100 actions one by one, the agent updates from them."""
import math
import random

import torch
from torch import nn
from torch.distributions import Categorical


class SpringEnv:
    def __init__(self, size=40):
        self.size = size

    def reset(self):
        self.pos = [random.uniform(-0.1, 0.1) for _ in range(self.size)]
        self.vel = [0.0] * self.size
        return self.observe()

    def observe(self):
        return self.pos[:8]

    def step(self, action):
        for _ in range(4):
            for i in range(self.size):
                left = self.pos[i - 1] if i else 0.0
                right = self.pos[i + 1] if i < self.size - 1 else 0.0
                f = -math.sin(self.pos[i]) + 4 * (left + right - 2 * self.pos[i])
                self.vel[i] += 0.01 * (f + (action - 1 if i == 0 else 0))
            for i in range(self.size):
                self.pos[i] += 0.01 * self.vel[i]
        return self.observe(), -abs(self.pos[-1]), False


class Agent:
    def __init__(self):
        self.body = nn.Sequential(nn.Linear(8, 32), nn.Tanh())
        self.pi = nn.Linear(32, 3)
        self.v = nn.Linear(32, 1)
        self.opt = torch.optim.Adam([*self.body.parameters(), *self.pi.parameters(), *self.v.parameters()], 1e-3)

    @torch.no_grad()
    def act(self, obs):
        return int(Categorical(logits=self.pi(self.body(torch.tensor(obs)))).sample())

    def update(self, batch):
        obs = torch.tensor(batch["obs"])
        act = torch.tensor(batch["act"])
        ret = torch.tensor(batch["rew"]).flip(0).cumsum(0).flip(0)
        h = self.body(obs)
        v = self.v(h).squeeze(-1)
        logp = Categorical(logits=self.pi(h)).log_prob(act)
        loss = -(logp * (ret - v.detach())).mean() + nn.functional.mse_loss(v, ret)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


class Trainer:
    def __init__(self, env, agent):
        self.env, self.agent = env, agent

    def collect(self, n):
        batch = {"obs": [], "act": [], "rew": []}
        obs = self.env.reset()
        for _ in range(n):
            a = self.agent.act(obs)
            nxt, r, done = self.env.step(a)
            batch["obs"].append(obs)
            batch["act"].append(a)
            batch["rew"].append(r)
            obs = nxt
        return batch

    def run(self, episodes):
        for ep in range(episodes):
            batch = self.collect(100)
            loss = self.agent.update(batch)
            if ep % 20 == 0:
                print(ep, loss)


random.seed(0)
torch.manual_seed(0)
torch.set_num_threads(1)
Trainer(SpringEnv(), Agent()).run(200)
