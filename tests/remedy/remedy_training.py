"""A training script as strangers write them, for live remedies: its losses and the order of its samples."""

SCRIPT = """
import argparse, json, pickle, random
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

options = argparse.ArgumentParser()
options.add_argument("--workers", type=int, default=0)
options.add_argument("--random", action="store_true")
options.add_argument("--rare", action="store_true")
options.add_argument("--zero", action="store_true")
options.add_argument("--bump", action="store_true")
options.add_argument("--lazy", action="store_true")
options.add_argument("--late", action="store_true")
options.add_argument("--epochs", type=int, default=3)
options = options.parse_args()

class Images(Dataset):
    scale = 1.0
    def __init__(self):
        self.epoch = 0
        self.factors = self.offset = None
    def __len__(self):
        return 24
    def __getitem__(self, index):
        image = torch.full((3, 8, 8), index / 24) * (1 + self.epoch)
        if options.lazy:
            self.factors = self.factors or {number: 1 + number for number in range(2000)}
            image = image * self.factors[index]
        if self.offset is not None:
            image = image + self.offset
        if options.rare and index == 5:
            image = image + torch.randn(3, 8, 8)
        if options.random:
            image = image + torch.randn(3, 8, 8) + float(np.random.rand()) + random.random()
        return image, index

def seed(worker):
    np.random.seed(torch.initial_seed() % 2**32)

if __name__ == "__main__":
    torch.manual_seed(0); torch.set_num_threads(1)
    if options.random: torch.multiprocessing.set_start_method("fork")  # others are not kept
    data = Images()
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Dropout(0.2), nn.Flatten(), nn.Linear(288, 4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    init = seed if options.workers else None
    loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=options.workers, worker_init_fn=init)
    check = DataLoader(data, batch_size=8)
    losses, order = [], []
    for epoch in range(options.epochs):
        if options.bump:
            data.epoch = epoch
        if options.late and epoch == 1:
            data.offset = 0.5
        for images, indices in loader:
            optimizer.zero_grad(set_to_none=not options.zero)
            output = model(images)
            assert output.dtype == torch.float32
            loss = nn.functional.cross_entropy(output, indices % 4)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            order.extend(indices.tolist())
        with torch.no_grad():
            for images, indices in check:
                model(images)
    pickle.dumps(model)
    print(json.dumps({"losses": losses, "order": order, "threads": torch.get_num_threads()}))
"""
