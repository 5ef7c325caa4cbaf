"""Q-learning."""
import random
from collections import deque, namedtuple

import torch
from hotloop.feed import stacked, concatenated

Transition = namedtuple("Transition", "state action reward next_state done")


class ReplayMemory:
    def __init__(self, capacity, device):
        self.memory, self.device = deque(maxlen=capacity), device

    def sample(self, batch_size):
        batch = Transition(*zip(*random.sample(self.memory, batch_size)))
        # of tuples
        states = stacked(torch.tensor, batch.state, dtype=torch.float32, device=self.device)
        nexts = stacked(
            torch.FloatTensor,
            (
                t  # not of the last
                for t in batch.next_state
                if t is not None
            ),
        )
        rewards = concatenated(torch.tensor, ([r] for r in batch.reward), to=torch.float32)
        actions = stacked(torch.LongTensor, batch.action)
        done = torch.tensor(batch.done)
        return states, actions, rewards, nexts, done
