from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

again = partial(checkpoint, use_reentrant=False)


class Net(nn.Module):
    def forward(self, x):
        return again(self.first, x)
