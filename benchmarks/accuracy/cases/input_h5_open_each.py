# truth: input/single-process | input/slow-sample
# bottleneck: input
# line: h5py\.File|f\[
"""Patches out of an HDF5 file that is opened for every one of them."""
import os
import tempfile

import h5py
import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class Patches(Dataset):
    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 512

    def __getitem__(self, i):
        with h5py.File(self.path, "r") as f:
            img = f["images"][i]
            lab = f["labels"][i]
        return torch.from_numpy(img), torch.as_tensor(lab)


def train(path):
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Patches(path), 16, True)
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 30 * 30, 2))
    opt = torch.optim.RMSprop(model.parameters(), 1e-4)
    for epoch in range(8):
        for img, lab in loader:
            loss = torch.nn.functional.cross_entropy(model(img), lab)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    path = os.path.join(tempfile.mkdtemp(), "patches.h5")
    rng = np.random.default_rng(0)
    with h5py.File(path, "w") as f:
        f.create_dataset("images", data=rng.standard_normal((512, 1, 32, 32)).astype("f4"), chunks=(16, 1, 32, 32), compression="gzip")
        f.create_dataset("labels", data=rng.integers(0, 2, 512))
    train(path)
    os.remove(path)
