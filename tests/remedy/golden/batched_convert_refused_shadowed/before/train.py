import numpy as torch


def batch(rows):
    tensor = float
    return torch.stack([tensor(row) for row in rows])
