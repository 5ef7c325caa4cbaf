# truth: input/single-process | input/slow-sample
# bottleneck: input
# line: caption_loader = DataLoader|pieces\[|pairs = 
# has: input/slow-sample
# not: input/too-few-workers | host/python-in-step
"""Two tasks, two loaders zipped; the captions one tokenizes on the fly."""
import itertools
import random
import re

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __init__(self):
        self.x = torch.rand(800, 3, 32, 32)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], i % 10


class Captions(Dataset):
    WORD = re.compile(r"[a-z]+|[^a-z\s]")

    def __init__(self):
        rng = random.Random(0)
        alphabet = "abcdefghijklmnop"
        self.texts = [" ".join("".join(rng.choices(alphabet, k=rng.randint(2, 9))) for _ in range(150)) for _ in range(800)]

    def __len__(self):
        return len(self.texts)

    def subwords(self, word):
        pieces = list(word)
        while len(pieces) > 1:
            pairs = [(hash(pieces[k] + pieces[k + 1]) & 1023, k) for k in range(len(pieces) - 1)]
            best, k = min(pairs)
            if best > 400:
                break
            pieces[k : k + 2] = [pieces[k] + pieces[k + 1]]
        return pieces

    def __getitem__(self, i):
        ids = []
        for word in self.WORD.findall(self.texts[i]):
            ids.extend(sum(map(ord, p)) % 4096 for p in self.subwords(word))
        ids = (ids + [0] * 256)[:256]
        return torch.tensor(ids), i % 4


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.vision = nn.Sequential(nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.Conv2d(16, 32, 3, 2), nn.ReLU(),
                                    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
        self.emb = nn.EmbeddingBag(4096, 64)
        self.text = nn.Linear(64, 4)

    def forward(self, images, ids):
        return self.vision(images), self.text(self.emb(ids))


def main():
    torch.manual_seed(0)
    image_loader = DataLoader(Images(), batch_size=16, shuffle=True)
    caption_loader = DataLoader(Captions(), batch_size=16, shuffle=True)
    model = Both()
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    ce = nn.CrossEntropyLoss()
    for epoch in range(4):
        for (images, a), (ids, b) in zip(image_loader, caption_loader):
            out_a, out_b = model(images, ids)
            loss = ce(out_a, a) + 0.5 * ce(out_b, b)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print("epoch", epoch, loss.item())


if __name__ == "__main__":
    main()
