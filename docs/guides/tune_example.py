"""Samples that wait some milliseconds (the argument), four to a batch, in short epochs, without workers."""

import sys
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

WAIT_S = float(sys.argv[1]) / 1000


class Spectra(Dataset):  # noqa: D101 - a script as people write them
    def __len__(self):
        return 512

    def __getitem__(self, i):
        time.sleep(WAIT_S)
        return torch.randn(600), i % 4


torch.manual_seed(0)
torch.set_num_threads(1)
loader = DataLoader(Spectra(), batch_size=4, shuffle=True)
model = nn.Sequential(nn.Linear(600, 256), nn.ReLU(), nn.Linear(256, 4))
optimizer = torch.optim.Adam(model.parameters())
for _ in range(40):
    for spectra, labels in loader:
        loss = nn.functional.cross_entropy(model(spectra), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
torch.save(model.state_dict(), "model.pt")
