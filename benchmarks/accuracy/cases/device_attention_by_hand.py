# healthy
# has: device/attention-not-fused
# bottleneck: device
"""Attention written out: scores, mask, softmax, product, each a pass over T x T per head."""
import math

import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, length):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)).view(1, 1, length, length))

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
        att = (q @ k.transpose(-2, -1)) / math.sqrt(C // self.heads)
        att = att.masked_fill(self.mask == 0, float("-inf"))
        att = torch.softmax(att, dim=-1)
        y = att @ v
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Encoder(nn.Module):
    def __init__(self, vocab=64, width=64, heads=8, length=384):
        super().__init__()
        self.emb = nn.Embedding(vocab, width)
        self.layers = nn.ModuleList(CausalSelfAttention(width, heads, length) for _ in range(2))
        self.out = nn.Linear(width, vocab)

    def forward(self, t):
        x = self.emb(t)
        for layer in self.layers:
            x = x + layer(x)
        return self.out(x)


model = Encoder()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
tokens = torch.randint(0, 64, (256, 385))
for step in range(60):
    batch = tokens[torch.randint(0, 256, (2,))]
    loss = nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 20 == 0:
        print(step, loss.item())
