from torch import nn
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def forward(self, x):
        return self.run(x)

    def run(self, x):
        self.calls += 1
        return self.linear(x) * min(1.0, self.calls / 1000)


class Net(nn.Module):
    def forward(self, x):
        return checkpoint(self.first, x, use_reentrant=False)
