# truth: host/recomputed-targets | host/python-in-step
# bottleneck: host
# line: values|normalize
# not: input/single-process
"""A list of frames is normalized one value at a time in the training loop."""
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Raw(Dataset):
    def __init__(self):
        self.frames = np.random.default_rng(0).integers(0, 255, (1000, 3, 32, 32)).astype(np.uint8)

    def __len__(self):
        return len(self.frames)

    def __getitem__(self, i):
        return self.frames[i], i % 5


def list_collate(items):
    return [i[0] for i in items], [i[1] for i in items]


def normalize(frame):
    values = [[[(v / 255.0 - 0.5) * 2 for v in row] for row in plane] for plane in frame.tolist()]
    return torch.tensor(values)


def main():
    loader = DataLoader(Raw(), batch_size=40, shuffle=True, collate_fn=list_collate)
    model = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 225, 5)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    t = time.time()
    for epoch in range(10):
        for frames, labels in loader:
            inputs = torch.stack([normalize(f).to(device) for f in frames])
            targets = torch.tensor(labels, device=device)
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())
    print(f"TRAIN {time.time() - t:.2f}")


if __name__ == "__main__":
    main()
