# truth: input/slow-sample | input/single-process | input/repeated-work
# bottleneck: input
# line: histogram|sort|percentile|normalise
# not: input/too-few-workers
# cores: 1
"""Lightning-like trainer with callbacks, percentile normalisation per sample; the machine has one core."""
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Callback:
    def on_epoch_start(self, trainer): ...
    def on_batch_end(self, trainer, batch_idx, out): ...
    def on_epoch_end(self, trainer): ...


class LossMeter(Callback):
    def on_epoch_start(self, trainer):
        self.total, self.n = 0.0, 0

    def on_batch_end(self, trainer, batch_idx, out):
        self.total += float(out.detach())
        self.n += 1

    def on_epoch_end(self, trainer):
        print(f"epoch {trainer.current_epoch}: {self.total / self.n:.4f}")


class Slices(Dataset):
    def __init__(self):
        self.data = np.random.default_rng(0).gamma(2.0, 1.0, (120, 256, 256)).astype(np.float32)

    def __len__(self):
        return len(self.data)

    def normalise(self, img):
        lo, hi = np.percentile(img, [1, 99])
        return np.clip((img - lo) / (hi - lo), 0, 1).astype(np.float32)

    def __getitem__(self, i):
        return torch.from_numpy(self.normalise(self.data[i])[None, ::4, ::4].copy())


class AutoEncoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.enc = torch.nn.Conv2d(1, 8, 4, 4)
        self.dec = torch.nn.ConvTranspose2d(8, 1, 4, 4)

    def training_step(self, batch, batch_idx):
        return torch.nn.functional.mse_loss(self.dec(torch.relu(self.enc(batch))), batch)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 1e-3)


class Trainer:
    def __init__(self, max_epochs, callbacks):
        self.max_epochs, self.callbacks = max_epochs, callbacks

    def call(self, hook, *args):
        for callback in self.callbacks:
            getattr(callback, hook)(self, *args)

    def fit(self, model, loader):
        optimizer = model.configure_optimizers()
        for self.current_epoch in range(self.max_epochs):
            self.call("on_epoch_start")
            for batch_idx, batch in enumerate(loader):
                loss = model.training_step(batch, batch_idx)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                self.call("on_batch_end", batch_idx, loss)
            self.call("on_epoch_end")


if __name__ == "__main__":
    torch.manual_seed(0)
    Trainer(40, [LossMeter()]).fit(AutoEncoder(), DataLoader(Slices(), batch_size=6, shuffle=True))
