import torch


def shrink(model):
    for p in model.parameters():
        p.data.mul_(0.99)
    return p.norm()
