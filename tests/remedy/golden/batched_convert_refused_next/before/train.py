import torch


def batch(stream):
    return torch.stack([torch.tensor(next(stream)) for _ in range(32)])
