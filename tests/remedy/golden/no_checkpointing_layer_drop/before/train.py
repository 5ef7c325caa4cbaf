import random

from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def forward(self, x):
        return x if random.random() < 0.1 else self.linear(x)


class Net(nn.Module):
    def forward(self, x):
        return checkpoint(self.first, x, use_reentrant=False)
