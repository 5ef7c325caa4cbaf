import torch
from hotloop.feed import converted


def collect(memory):
    states, actions, rewards = zip(*memory)
    obs = converted(torch.FloatTensor, states)  # told apart
    acts = converted(
        torch.tensor,
        actions, dtype=torch.long
    )
    return obs, acts, converted(torch.tensor, [r for r in rewards])
