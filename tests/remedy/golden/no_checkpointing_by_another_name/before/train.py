import torch
import torch.utils.checkpoint as ckpt
from torch import nn
from torch.utils.checkpoint import (
    checkpoint as run_again,
    set_checkpoint_early_stop,
)

set_checkpoint_early_stop(True)


class Net(nn.Module):
    def forward(self, x):
        x = ckpt.checkpoint(self.first, *x, use_reentrant=False)
        return run_again(self.parts[0], x, (x + 1), use_reentrant=False) + torch.ones(())
