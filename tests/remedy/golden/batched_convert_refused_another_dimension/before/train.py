import torch


def batch(rows):
    return torch.stack([torch.tensor(row) for row in rows], dim=1)
