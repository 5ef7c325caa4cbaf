import torch


def setup(seed):
    torch.backends.cudnn.benchmark = True
    if seed is not None:
        torch.backends.cudnn.benchmark = False
