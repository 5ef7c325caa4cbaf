from torch import nn
from torch.utils.checkpoint import checkpoint

CALLS = {"forward": 0}


def counted(x):
    CALLS["forward"] += 1
    return x * min(1.0, CALLS["forward"] / 1000)


class Block(nn.Module):
    def forward(self, x):
        return counted(self.linear(x))


class Net(nn.Module):
    def forward(self, x):
        return checkpoint(self.first, x, use_reentrant=False)
