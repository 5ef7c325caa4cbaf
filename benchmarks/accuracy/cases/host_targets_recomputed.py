# truth: host/recomputed-targets | host/python-in-step
# bottleneck: host
# line: heat|exp|gaussian|for |targets
# not: input/single-process | input/slow-sample
"""Keypoint detector: Gaussian heatmaps are drawn in the training loop for every batch."""
import math

import torch
from torch.utils.data import DataLoader, Dataset


class Keypoints(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(0)
        self.images = torch.rand(256, 3, 64, 64, generator=g)
        self.points = torch.randint(8, 56, (256, 6, 2), generator=g)

    def __len__(self):
        return 256

    def __getitem__(self, i):
        return self.images[i], self.points[i]


def generate_targets(points, size=32, sigma=1.5):
    heat = torch.zeros(points.shape[0], points.shape[1], size, size)
    for b in range(points.shape[0]):
        for k in range(points.shape[1]):
            cx, cy = points[b, k, 0].item() / 2, points[b, k, 1].item() / 2
            for yy in range(max(0, int(cy) - 4), min(size, int(cy) + 5)):
                for xx in range(max(0, int(cx) - 4), min(size, int(cx) + 5)):
                    heat[b, k, yy, xx] = math.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * sigma**2))
    return heat


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Keypoints(), batch_size=8, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, 2, 1), torch.nn.ReLU(), torch.nn.Conv2d(8, 6, 1))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for epoch in range(3):
        for images, points in loader:
            targets = generate_targets(points)
            loss = torch.nn.functional.mse_loss(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: {loss.item():.5f}")


if __name__ == "__main__":
    main()
