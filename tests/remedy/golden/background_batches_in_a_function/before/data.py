import torch


def load(num):
    frames = torch.arange(8000.0).reshape(1000, 8)
    return frames[:900], frames[900:]
