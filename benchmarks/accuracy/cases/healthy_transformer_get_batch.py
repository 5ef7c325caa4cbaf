# healthy
# bottleneck: device
"""A small GPT with a get_batch that costs nothing."""
import math

import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)
T, B, V, C = 96, 8, 128, 128
data = torch.randint(0, V, (100_000,))


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.proj = nn.Linear(C, 3 * C), nn.Linear(C, C)

    def forward(self, x):
        q, k, v = (t.view(B, T, 4, C // 4).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(y.transpose(1, 2).reshape(B, T, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2, self.attn = nn.LayerNorm(C), nn.LayerNorm(C), Attention()
        self.mlp = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C))

    def forward(self, x):
        x = x + self.attn(self.ln1(x))
        return x + self.mlp(self.ln2(x))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(C, V, bias=False)

    def forward(self, idx, targets):
        x = self.wte(idx) + self.wpe(torch.arange(T))
        for block in self.blocks:
            x = block(x)
        logits = self.head(x)
        return logits, F.cross_entropy(logits.view(-1, V), targets.reshape(-1))


def get_batch():
    ix = torch.randint(len(data) - T - 1, (B, 1)) + torch.arange(T + 1)
    chunk = data[ix]
    return chunk[:, :-1], chunk[:, 1:]


def lr_at(it):
    return 3e-4 * (0.1 + 0.45 * (1 + math.cos(math.pi * it / 130)))


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for it in range(130):
    for group in optimizer.param_groups:
        group["lr"] = lr_at(it)
    x, y = get_batch()
    logits, loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    if it % 40 == 0:
        print(it, loss.item())
