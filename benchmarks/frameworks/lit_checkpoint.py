"""Lightning: a checkpoint after every step."""

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 10))

    def training_step(self, batch, batch_idx):
        x, y = batch
        loss = nn.functional.cross_entropy(self.net(x), y)
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


data = TensorDataset(torch.randn(1600, 512), torch.randint(0, 10, (1600,)))
trainer = L.Trainer(
    accelerator="cpu",
    max_epochs=1,
    logger=False,
    default_root_dir="out-lit-ckpt",
    callbacks=[ModelCheckpoint(dirpath="out-lit-ckpt", every_n_train_steps=1, save_top_k=1, monitor=None)],
)
trainer.fit(Net(), DataLoader(data, batch_size=32, shuffle=True))
