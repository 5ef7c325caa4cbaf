# truth: host/python-in-step
# bottleneck: host
# line: vowels|words|json\.loads|rows\.sort|Curriculum|features
# not: host/recomputed-targets | input/single-process | trend/step-outliers
"""A curriculum: the dataset is read, sorted and built anew for every epoch."""
import json
import random
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

ALPHABET = "abcdefghijklmnopqrstuvwxyz"
chooser = random.Random(0)
WORDS = ["".join(chooser.choices(ALPHABET, k=chooser.randint(2, 9))) for _ in range(2000)]
ROWS = [json.dumps({"text": " ".join(chooser.choices(WORDS, k=120)), "label": chooser.randint(0, 3)}) for _ in range(3000)]


def difficulty(text):
    words = text.split()
    vowels = sum(1 for w in words for c in w if c in "aeiou")
    return len(set(words)) + vowels / len(words)


class Curriculum(Dataset):
    def __init__(self, lines, fraction):
        rows = [json.loads(line) for line in lines]
        rows.sort(key=lambda r: difficulty(r["text"]))
        rows = rows[: int(len(rows) * fraction)]
        self.features = torch.tensor([[float(len(w)) for w in r["text"].split()[:64]] for r in rows])
        self.labels = torch.tensor([r["label"] for r in rows])

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return self.features[i], self.labels[i]


def main():
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 4))
    opt = torch.optim.SGD(model.parameters(), 0.01)
    t0 = time.time()
    for epoch in range(24):
        dataset = Curriculum(ROWS, 0.2 + 0.03 * epoch)
        loader = DataLoader(dataset, batch_size=128, shuffle=True)
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print(epoch, len(dataset), loss.item())
    print(f"TRAIN {time.time() - t0:.2f}")


if __name__ == "__main__":
    main()
