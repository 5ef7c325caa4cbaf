# truth: input/slow-collate | input/slow-sample | input/single-process | input/per-sample-conversion
# bottleneck: input
# line: sample|stack|zip|array|tensor
"""Q-learning: transitions in a deque of tuples, a batch is put together element by element."""
import collections
import random

import numpy as np
import torch
import torch.nn as nn

Transition = collections.namedtuple("Transition", "state action reward next_state done")


class ReplayMemory:
    def __init__(self, capacity):
        self.memory = collections.deque([], maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        picked = random.sample(self.memory, batch_size)
        batch = Transition(*zip(*picked))
        return (
            torch.stack([torch.tensor(s, dtype=torch.float32) for s in batch.state]),
            torch.tensor(batch.action),
            torch.tensor(batch.reward, dtype=torch.float32),
            torch.stack([torch.tensor(s, dtype=torch.float32) for s in batch.next_state]),
            torch.tensor(batch.done, dtype=torch.float32),
        )


def main():
    random.seed(0)
    rng = np.random.default_rng(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    memory = ReplayMemory(20_000)
    state = rng.standard_normal(24)
    for _ in range(20_000):
        nxt = state * 0.9 + rng.standard_normal(24) * 0.1
        memory.push(state.tolist(), int(rng.integers(4)), float(nxt[0]), nxt.tolist(), float(rng.random() < 0.01))
        state = nxt
    net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 4))
    target = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 4))
    target.load_state_dict(net.state_dict())
    opt = torch.optim.Adam(net.parameters(), 1e-3)
    for update in range(900):
        s, a, r, s2, d = memory.sample(256)
        with torch.no_grad():
            goal = r + 0.99 * (1 - d) * target(s2).max(1).values
        q = net(s).gather(1, a[:, None]).squeeze(1)
        loss = nn.functional.smooth_l1_loss(q, goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if update % 200 == 0:
            target.load_state_dict(net.state_dict())
            print(update, loss.item())


main()
