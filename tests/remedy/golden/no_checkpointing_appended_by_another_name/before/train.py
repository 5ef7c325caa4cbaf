from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def forward(self, x):
        seen = self.history
        seen.append(x.detach().mean())
        return self.linear(x) / (1 + sum(seen[-3:]))


class Net(nn.Module):
    def forward(self, x):
        return checkpoint(self.first, x, use_reentrant=False)
