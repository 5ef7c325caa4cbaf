# healthy
# bottleneck: device
"""Augmentation in one persistent worker that keeps up easily; the model takes the time."""
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Augmented(Dataset):
    def __init__(self):
        self.images = np.random.default_rng(0).random((512, 3, 48, 48), dtype=np.float32)

    def __len__(self):
        return 512

    def __getitem__(self, i):
        img = self.images[i]
        if np.random.rand() < 0.5:
            img = img[:, :, ::-1]
        dy, dx = np.random.randint(0, 9, 2)
        return torch.from_numpy(np.ascontiguousarray(img[:, dy:dy + 40, dx:dx + 40])), i % 10


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Augmented(), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
    model = nn.Sequential(
        nn.Conv2d(3, 40, 3, padding=1), nn.ReLU(), nn.Conv2d(40, 40, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(40, 64, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for epoch in range(5):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
