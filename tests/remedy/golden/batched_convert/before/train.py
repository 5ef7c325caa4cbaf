"""Q-learning."""
import random
from collections import deque, namedtuple

import torch

Transition = namedtuple("Transition", "state action reward next_state done")


class ReplayMemory:
    def __init__(self, capacity, device):
        self.memory, self.device = deque(maxlen=capacity), device

    def sample(self, batch_size):
        batch = Transition(*zip(*random.sample(self.memory, batch_size)))
        # of tuples
        states = torch.stack([torch.tensor(s, dtype=torch.float32, device=self.device) for s in batch.state])
        nexts = torch.stack(
            [
                torch.FloatTensor(t)  # not of the last
                for t in batch.next_state
                if t is not None
            ],
            dim=0,
        )
        rewards = torch.cat([torch.tensor([r]).float() for r in batch.reward])
        actions = torch.stack(list(map(torch.LongTensor, batch.action)))
        done = torch.tensor(batch.done)
        return states, actions, rewards, nexts, done
