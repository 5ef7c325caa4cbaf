import torch
import torch.utils.checkpoint as ckpt
from torch import nn
from torch.utils.checkpoint import (
    set_checkpoint_early_stop,
)

set_checkpoint_early_stop(True)


class Net(nn.Module):
    def forward(self, x):
        x = self.first(*x)
        return self.parts[0](x, (x + 1)) + torch.ones(())
