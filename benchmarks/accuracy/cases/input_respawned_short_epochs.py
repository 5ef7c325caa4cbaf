# truth: input/respawned-workers | input/too-many-workers
# bottleneck: input
# not: input/too-few-workers | input/shallow-prefetch
"""Few-shot set: 200 samples, an epoch is seven batches, workers start anew each time."""
import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class FewShot(Dataset):
    def __init__(self):
        rng = np.random.default_rng(0)
        self.x = rng.standard_normal((224, 3, 32, 32)).astype("float32")
        self.y = rng.integers(0, 5, 224)

    def __getitem__(self, i):
        x = self.x[i]
        if np.random.rand() < 0.5:
            x = x[:, :, ::-1].copy()
        return torch.from_numpy(x), int(self.y[i])

    def __len__(self):
        return 224


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, 2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 15 * 15, 5)
    )
    opt = torch.optim.Adam(net.parameters())
    loader = DataLoader(FewShot(), batch_size=32, shuffle=True, num_workers=2)
    for epoch in range(60):
        for x, y in loader:
            loss = F.cross_entropy(net(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
    print(loss.item())


main()
