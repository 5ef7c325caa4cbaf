import torch


def seed(value):
    torch.manual_seed(value)
