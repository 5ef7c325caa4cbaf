"""Lightning data module whose collate function pads in Python."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sequences(Dataset):
    def __init__(self, size):
        self.lengths = [60 + (i * 37) % 60 for i in range(size)]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return list(range(self.lengths[index])), index % 4


def pad(batch):
    longest = max(len(sequence) for sequence, _ in batch)
    inputs = torch.zeros(len(batch), longest)
    for row, (sequence, _) in enumerate(batch):
        for column, value in enumerate(sequence):
            inputs[row, column] = value / 100
    return inputs, torch.tensor([label for _, label in batch])


class Data(L.LightningDataModule):
    def setup(self, stage):
        self.train = Sequences(2400)

    def train_dataloader(self):
        return DataLoader(self.train, batch_size=24, shuffle=True, collate_fn=pad)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(1, 16, batch_first=True)
        self.head = nn.Linear(16, 4)

    def training_step(self, batch, batch_idx):
        x, y = batch
        _, hidden = self.rnn(x[:, ::8].unsqueeze(-1))
        loss = nn.functional.cross_entropy(self.head(hidden[-1]), y)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    trainer = L.Trainer(accelerator="cpu", max_epochs=6, logger=False, enable_checkpointing=False)
    trainer.fit(Net(), datamodule=Data())
