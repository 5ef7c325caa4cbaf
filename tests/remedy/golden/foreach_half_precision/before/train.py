import copy

from torch import nn, no_grad


class EMA:
    """Averages of the weights."""

    def __init__(self, model, decay=0.999):
        self.module = copy.deepcopy(model)
        self.decay = decay

    @no_grad()
    def update(self, model):
        # buffers are averaged nowhere
        for average, param in zip(self.module.parameters(), model.parameters()):  # twins
            average.mul_(self.decay)
            average.add_(param.detach(), alpha=1 - self.decay)  # towards the model
        self.module.eval()
