import torch


def batch(rows, types):
    return torch.stack([torch.tensor(row, dtype=t) for row, t in zip(rows, types)])
