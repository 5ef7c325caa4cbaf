from torch import nn
from torch.utils.checkpoint import checkpoint

calls = 0


class Block(nn.Module):
    def forward(self, x):
        global calls
        calls += 1
        return self.linear(x) * min(1.0, calls / 1000)


class Net(nn.Module):
    def forward(self, x):
        return checkpoint(self.first, x, use_reentrant=False)
