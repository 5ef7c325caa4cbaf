import torch


def setup(seed):
    torch.backends.cudnn.benchmark = True
    torch.manual_seed(seed)
    torch.backends.cudnn.benchmark = False
