from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def forward(self, x):
        h = self.linear(x)
        self.history.append(h.detach().abs().mean())
        return h / (1 + sum(self.history[-3:]))


class Net(nn.Module):
    def forward(self, x):
        return checkpoint(self.first, x, use_reentrant=False)
