# truth: config/ignored-value | input/single-process | input/slow-sample | input/per-sample-conversion
# bottleneck: input
# has: config/ignored-value
"""The YAML file says num_workers: 2; the code never passes it on."""
import math
import os
import tempfile

import torch
import yaml
from torch.utils.data import DataLoader, Dataset

CONFIG = """
model:
  hidden: 64
data:
  batch_size: 16
  num_workers: 2
  pin_memory: false
optim:
  lr: 0.001
  epochs: 6
"""


class Curves(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, i):
        curve = [math.sin(0.01 * (i + 1) * t) * math.exp(-t / 900) for t in range(4000)]
        return torch.tensor(curve[::20]), torch.tensor([float(i % 7)])


def main():
    path = os.path.join(tempfile.mkdtemp(), "config.yaml")
    with open(path, "w") as f:
        f.write(CONFIG)
    with open(path) as f:
        cfg = yaml.safe_load(f)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Curves(), batch_size=cfg["data"]["batch_size"], shuffle=True)
    hidden = cfg["model"]["hidden"]
    model = torch.nn.Sequential(torch.nn.Linear(200, hidden), torch.nn.ReLU(), torch.nn.Linear(hidden, 1))
    opt = torch.optim.Adam(model.parameters(), lr=cfg["optim"]["lr"])
    for epoch in range(cfg["optim"]["epochs"]):
        for x, y in loader:
            loss = torch.nn.functional.mse_loss(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
