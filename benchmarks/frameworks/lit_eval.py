"""Lightning: validation every four batches."""

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(
            nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1)
        )
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(self.conv(x).flatten(1))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        x, y = batch
        self.log("val_acc", (self(x).argmax(1) == y).float().mean(), prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01, momentum=0.9)


def loader(size):
    data = TensorDataset(torch.randn(size, 3, 32, 32), torch.randint(0, 10, (size,)))
    return DataLoader(data, batch_size=32, shuffle=size > 500)


L.seed_everything(1)
trainer = L.Trainer(
    accelerator="cpu",
    max_epochs=1,
    val_check_interval=4,
    num_sanity_val_steps=2,
    logger=CSVLogger("out-lit"),
    enable_checkpointing=False,
    log_every_n_steps=10,
)
trainer.fit(Net(), loader(960), loader(256))
