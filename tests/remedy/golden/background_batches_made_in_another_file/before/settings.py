import torch

noise = 0.0


def get_batch():
    return torch.randn(16, 8) * noise
