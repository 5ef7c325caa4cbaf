from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


class Net(nn.Module):
    def forward(self, x):
        return checkpoint_sequential([self.first, self.second], 2, x, use_reentrant=False)
