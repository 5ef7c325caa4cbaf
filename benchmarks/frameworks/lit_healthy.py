"""Lightning: a convolution network that computes."""

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        return self.head(self.conv(x).flatten(1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


def loader(size):
    data = TensorDataset(torch.randn(size, 3, 32, 32), torch.randint(0, 10, (size,)))
    return DataLoader(data, batch_size=32, shuffle=size > 500)


trainer = L.Trainer(accelerator="cpu", max_epochs=1, logger=CSVLogger("out-lit"), log_every_n_steps=10)
trainer.fit(Net(), loader(1280), loader(64))
