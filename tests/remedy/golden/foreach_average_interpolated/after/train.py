import copy

from torch import nn, no_grad
import torch


class EMA:
    """Averages of the weights."""

    def __init__(self, model, decay=0.999):
        self.module = copy.deepcopy(model)
        self.decay = decay

    @no_grad()
    def update(self, model):
        # buffers are averaged nowhere
        # twins
        pairs = [
            (average, param.detach())
            for average, param in zip(self.module.parameters(), model.parameters())
        ]
        if pairs:
            averages, params = zip(*pairs)
            torch._foreach_lerp_(averages, params, 1 - self.decay)  # towards the model
        self.module.eval()
