# truth: input/slow-sample | input/too-few-workers
# bottleneck: input
# line: energy|zero_crossings|for |sum\(|if
# not: input/worker-transport
"""Sound event detector: frame features computed in plain Python, one worker."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Clips(Dataset):
    def __init__(self, n, seed):
        rnd = random.Random(seed)
        self.clips = [[rnd.uniform(-1, 1) for _ in range(4000)] for _ in range(n)]
        self.labels = [rnd.randrange(3) for _ in range(n)]

    def __len__(self):
        return len(self.clips)

    def features(self, clip, size=200):
        rows = []
        for s in range(0, len(clip), size):
            frame = clip[s:s + size]
            energy = sum(v * v for v in frame) / size
            zero_crossings = sum(1 for a, b in zip(frame, frame[1:]) if a * b < 0)
            rows.append([energy, zero_crossings / size, max(frame), min(frame)])
        return rows

    def __getitem__(self, i):
        return torch.tensor(self.features(self.clips[i])), self.labels[i]


class Trainer:
    def __init__(self, model, loader):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.loss_fn = nn.CrossEntropyLoss()

    def training_step(self, batch):
        x, y = batch
        loss = self.loss_fn(self.model(x.flatten(1)), y)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss

    def fit(self, epochs):
        for epoch in range(epochs):
            for batch in self.loader:
                loss = self.training_step(batch)
            print(f"epoch {epoch} loss {loss.item():.3f}")


if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = Clips(600, 0)
    loader = DataLoader(data, batch_size=20, shuffle=True, num_workers=1, persistent_workers=True)
    Trainer(nn.Sequential(nn.Linear(80, 64), nn.ReLU(), nn.Linear(64, 3)), loader).fit(15)
