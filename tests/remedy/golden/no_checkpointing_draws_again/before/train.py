from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def forward(self, x):
        return checkpoint(self.first, x, use_reentrant=False, preserve_rng_state=False)
