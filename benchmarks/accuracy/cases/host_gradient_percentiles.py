# truth: host/python-in-step
# bottleneck: host
# line: np\.(percentile|abs)
# not: cadence/logging | input/single-process
"""Trainer and callbacks in one file; one callback takes percentiles of every gradient after each backward."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class GradientStatistics:
    def __init__(self):
        self.history = []

    def on_after_backward(self, trainer, module):
        row = {}
        for name, p in module.named_parameters():
            g = p.grad.detach().numpy().ravel()
            row[name] = (np.percentile(g, [1, 25, 50, 75, 99]).tolist(), float(np.abs(g).max()))
        self.history.append(row)


class LitMLP(nn.Module):
    def __init__(self):
        super().__init__()
        layers = [part for _ in range(4) for part in (nn.Linear(320, 320), nn.LayerNorm(320), nn.GELU())]
        self.net = nn.Sequential(*layers, nn.Linear(320, 10))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return nn.functional.cross_entropy(self.net(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


class Trainer:
    def __init__(self, max_epochs, callbacks):
        self.max_epochs, self.callbacks, self.global_step = max_epochs, callbacks, 0

    def call(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook)(self, *args)

    def fit(self, module, loader):
        opt = module.configure_optimizers()
        for epoch in range(self.max_epochs):
            for i, batch in enumerate(loader):
                loss = module.training_step(batch, i)
                opt.zero_grad()
                loss.backward()
                self.call("on_after_backward", module)
                opt.step()
                self.global_step += 1
            print("epoch", epoch, "loss", float(loss))


torch.manual_seed(1)
torch.set_num_threads(1)
data = DataLoader(TensorDataset(torch.randn(6400, 320), torch.randint(0, 10, (6400,))), batch_size=64, shuffle=True)
Trainer(3, [GradientStatistics()]).fit(LitMLP(), data)
