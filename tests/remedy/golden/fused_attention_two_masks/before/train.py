import math
import torch
import torch.nn as nn


class A(nn.Module):
    def __init__(self, d=16, n=32):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.mask = torch.triu(torch.ones(n, n), diagonal=1).bool()

    def forward(self, x, pad=None):
        T = x.size(1)
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        scores = q.bmm(k.transpose(1, 2)).div(math.sqrt(q.size(-1)))
        if pad is not None:
            scores = scores.masked_fill(pad[:, None, :], float("-inf"))
        scores = scores.masked_fill(self.mask[:T, :T], float("-inf"))
        weights = scores.softmax(dim=2)
        return weights.bmm(v)


def example():
    pad = torch.zeros(2, 6).bool()
    pad[1, 4:] = True
    return A(), (torch.randn(2, 6, 16), pad)
