import torch


def collect(memory):
    states, actions, rewards = zip(*memory)
    obs = torch.FloatTensor(states)  # told apart
    acts = torch.tensor(
        actions, dtype=torch.long
    )
    return obs, acts, torch.tensor([r for r in rewards])
