# truth: host/gc-pauses
# bottleneck: host
# line: gc\.collect
"""Somebody had a memory problem once and put gc.collect() into the loop."""
import gc

import torch
import torch.nn.functional as F

torch.manual_seed(0)
vocabulary = [{"id": i, "word": f"tok{i}", "neighbours": [i - 1, i + 1]} for i in range(250_000)]
emb = torch.nn.Embedding(1000, 48)
dec = torch.nn.Linear(48, 1000)
optimizer = torch.optim.Adam(list(emb.parameters()) + list(dec.parameters()), lr=1e-3)


def train_step(tokens):
    optimizer.zero_grad()
    logits = dec(emb(tokens[:, :-1]))
    loss = F.cross_entropy(logits.reshape(-1, 1000), tokens[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    gc.collect()
    return loss.item()


losses = [train_step(torch.randint(0, 1000, (8, 17))) for _ in range(40)]
print(len(vocabulary), losses[0], losses[-1])
