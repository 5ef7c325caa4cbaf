import torch

SIZE = 16
frames = torch.arange(8000.0).reshape(1000, 8)


def scale(power):
    return 0.5**power
