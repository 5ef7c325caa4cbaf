import argparse
import numpy as np
import torch
from torch import nn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args([])
    series = np.cumsum(np.random.default_rng(0).standard_normal(10_000)).astype(np.float32)
    mean, std = series.mean(), series.std()

    def get_batch():
        at = np.random.randint(0, len(series) - 33, args.batch)
        windows = np.stack([(series[i:i + 33] - mean) / std for i in at])
        return torch.from_numpy(windows[:, :32]), torch.from_numpy(windows[:, 32])

    model = nn.Linear(32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
    for step in range(100):
        x, y = get_batch()
        loss = (model(x)[:, 0] - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    main()
