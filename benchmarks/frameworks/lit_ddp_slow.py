"""Lightning: features are normalized in Python for every sample, two processes."""

import lightning as L
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __init__(self, size, seed):
        self.data = torch.randn(size, 200, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        values = self.data[index].tolist()
        mean = sum(values) / len(values)
        smooth = []
        for at in range(len(values)):
            window = values[max(0, at - 5) : at + 6]
            smooth.append(sum(window) / len(window) - mean)
        return torch.tensor(smooth), int(mean > 0)


class Classifier(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(200, 128), nn.ReLU(), nn.Linear(128, 2))
        self.loss = nn.CrossEntropyLoss()

    def training_step(self, batch, batch_idx):
        inputs, targets = batch
        loss = self.loss(self.net(inputs), targets)
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def validation_step(self, batch, batch_idx):
        inputs, targets = batch
        self.log("val_loss", self.loss(self.net(inputs), targets))

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


def main():
    train = DataLoader(Signals(1600, 0), batch_size=32, shuffle=True)
    val = DataLoader(Signals(320, 1), batch_size=32)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=2,
        strategy="ddp",
        max_epochs=4,
        accumulate_grad_batches=2,
        logger=CSVLogger("out-lit"),
        callbacks=[ModelCheckpoint(monitor="val_loss")],
        log_every_n_steps=10,
    )
    trainer.fit(Classifier(), train, val)


if __name__ == "__main__":
    main()
