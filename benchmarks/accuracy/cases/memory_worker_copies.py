# truth: memory/worker-copies
# bottleneck: device
"""Two million Python objects in the dataset: every worker that touches them copies their pages."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Captions(Dataset):
    def __init__(self, n=1_500_000):
        self.names = [f"img_{i:08d}.jpg" for i in range(n)]
        self.meta = [(i % 640, i % 480) for i in range(n)]
        self.order = list(range(n))

    def __len__(self):
        return 16_000

    def __getitem__(self, i):
        picked = self.order[i::16_000]
        size = sum(self.meta[j][0] + len(self.names[j]) for j in picked)
        g = torch.Generator().manual_seed(i)
        return torch.randn(64, generator=g), size % 5


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Captions(), batch_size=64, num_workers=2, shuffle=True, persistent_workers=True)
    model = nn.Sequential(nn.Linear(64, 2600), nn.ReLU(), nn.Linear(2600, 2600), nn.ReLU(), nn.Linear(2600, 5))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for epoch in range(2):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
