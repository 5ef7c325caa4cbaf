import torch


def batch(rows):
    return torch.stack([torch.tensor(row, requires_grad=True) for row in rows])
