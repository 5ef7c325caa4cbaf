# truth: input/single-process | input/slow-sample | input/per-sample-conversion
# bottleneck: input
# line: json\.loads|for|tensor
"""Click logs streamed from a JSON-lines file."""
import json
import os
import random
import tempfile

import torch
from torch.utils.data import DataLoader, IterableDataset


class ClickLog(IterableDataset):
    def __init__(self, path, repeats):
        self.path, self.repeats = path, repeats

    def __iter__(self):
        for _ in range(self.repeats):
            with open(self.path) as f:
                for line in f:
                    record = json.loads(line)
                    x = torch.tensor([record[f"f{k}"] for k in range(40)])
                    yield x, float(record["clicked"])


def main():
    rnd = random.Random(0)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    fd, path = tempfile.mkstemp(suffix=".jsonl")
    with os.fdopen(fd, "w") as f:
        for _ in range(8000):
            f.write(json.dumps({**{f"f{k}": rnd.random() for k in range(40)}, "ua": "x" * 800, "clicked": rnd.random() < 0.1}) + "\n")
    try:
        loader = DataLoader(ClickLog(path, 18), batch_size=128)
        model = torch.nn.Sequential(torch.nn.Linear(40, 16), torch.nn.ReLU(), torch.nn.Linear(16, 1))
        opt = torch.optim.Adagrad(model.parameters(), 0.01)
        for i, (x, y) in enumerate(loader):
            logit = model(x).squeeze(1)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(logit, y.float())
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(i, loss.item())
    finally:
        os.unlink(path)


if __name__ == "__main__":
    main()
