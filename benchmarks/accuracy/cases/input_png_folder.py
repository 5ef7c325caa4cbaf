# truth: input/single-process | input/slow-sample
# bottleneck: input
# line: Image\.open|resize|convert|asarray|img = self\.tf
"""Image classifier on a folder of PNG files, default loader settings."""
import os
import tempfile

import numpy as np
import torch
import torch.nn as nn
from PIL import Image
from torch.utils.data import DataLoader, Dataset


def write_images(root, n=120):
    rng = np.random.default_rng(0)
    for i in range(n):
        low = rng.integers(0, 255, (24, 32, 3), dtype=np.uint8)
        Image.fromarray(low).resize((512, 384)).save(os.path.join(root, f"{i % 4}_{i:04d}.png"))


class Folder(Dataset):
    def __init__(self, root):
        self.paths = sorted(os.path.join(root, f) for f in os.listdir(root))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, i):
        path = self.paths[i]
        img = Image.open(path).convert("RGB").resize((128, 96), Image.BICUBIC)
        x = np.asarray(img, dtype=np.float32) / 255.0
        return torch.from_numpy(x).permute(2, 0, 1), int(os.path.basename(path)[0])


def main():
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as root:
        write_images(root)
        loader = DataLoader(Folder(root), batch_size=8, shuffle=True)
        model = nn.Sequential(
            nn.Conv2d(3, 8, 5, stride=4), nn.ReLU(), nn.Conv2d(8, 16, 3, stride=2), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4),
        )
        opt = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        criterion = nn.CrossEntropyLoss()
        for epoch in range(3):
            for x, y in loader:
                opt.zero_grad()
                loss = criterion(model(x), y)
                loss.backward()
                opt.step()
            print("epoch", epoch, "loss", loss.item())


if __name__ == "__main__":
    main()
