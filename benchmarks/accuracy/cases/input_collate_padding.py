# truth: input/slow-collate | input/single-process
# bottleneck: input
# line: padded|row|mask|for
"""Token sequences of all lengths, padded token by token when the batch is put together."""
import random

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Sentences(Dataset):
    def __init__(self, n=4000):
        rnd = random.Random(7)
        self.data = [([rnd.randrange(1, 500) for _ in range(rnd.randrange(20, 160))], rnd.randrange(2)) for _ in range(n)]

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


def pad_batch(items):
    longest = max(len(tokens) for tokens, _ in items)
    padded = torch.zeros(len(items), longest, dtype=torch.long)
    mask = torch.zeros(len(items), longest)
    for row, (tokens, _) in enumerate(items):
        for col, token in enumerate(tokens):
            padded[row, col] = token
            mask[row, col] = 1.0
    return padded, mask, torch.tensor([label for _, label in items])


class Bag(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(500, 64)
        self.out = nn.Linear(64, 2)

    def forward(self, tokens, mask):
        e = self.emb(tokens) * mask.unsqueeze(-1)
        return self.out(e.sum(1) / mask.sum(1, keepdim=True))


torch.manual_seed(0)
torch.set_num_threads(1)
model = Bag()
opt = torch.optim.Adam(model.parameters(), 1e-3)
loader = DataLoader(Sentences(), batch_size=32, shuffle=True, collate_fn=pad_batch)
for step, (tokens, mask, label) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(tokens, mask), label)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if step % 25 == 0:
        print(step, loss.item())
