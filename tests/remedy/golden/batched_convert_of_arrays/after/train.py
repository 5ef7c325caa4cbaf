import random

import torch
from hotloop.feed import converted


def learn(memory, policy, device):
    states, actions, rewards = zip(*random.sample(memory, 32))
    states = converted(torch.FloatTensor, states)  # arrays
    seen = converted(torch.as_tensor, [each.state for each in memory], dtype=torch.float32, device=device)
    weights = torch.tensor(policy.weights)
    return states, actions, rewards, seen, weights
