import torch
import torch.nn.functional as F


def batch(rows, n):
    padded = torch.stack([F.pad(torch.tensor(row), (0, n - len(row))) for row in rows])
    scaled = torch.stack([torch.tensor(row) / 255 for row in rows])
    return padded, scaled, torch.vstack([torch.tensor(row) for row in rows])
