# truth: input/slow-sample | input/single-process | input/per-sample-conversion | input/slow-collate
# bottleneck: input
# line: tokenize|split|vocab|lower|strip|re\.
# not: host/python-in-step
"""Text classifier fed by a generator that tokenises as it goes."""
import random
import re

import torch
from torch import nn

rnd = random.Random(0)
WORDS = ["".join(rnd.choices("abcdefghij", k=rnd.randint(3, 9))) for _ in range(3000)]
DOCS = [" ".join(rnd.choices(WORDS, k=300)).capitalize() + "." for _ in range(400)]
vocab = {w: i + 1 for i, w in enumerate(WORDS)}


def tokenize(doc):
    words = [re.sub(r"[^a-z]", "", w.lower()) for w in doc.split()]
    return [vocab.get(w, 0) for w in words]


def batches(docs, size, epochs):
    for _ in range(epochs):
        rnd.shuffle(docs)
        for s in range(0, len(docs), size):
            part = docs[s:s + size]
            tokens = torch.tensor([tokenize(d) for d in part])
            yield tokens, torch.tensor([len(d) % 2 for d in part])


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = nn.Sequential(nn.EmbeddingBag(3001, 32), nn.Linear(32, 2))
    opt = torch.optim.Adam(model.parameters(), 1e-3)
    for n, (x, y) in enumerate(batches(DOCS, 20, 30)):
        loss = nn.functional.cross_entropy(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        if n % 100 == 0:
            print(n, loss.item())


if __name__ == "__main__":
    main()
