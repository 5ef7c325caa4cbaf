import math
import torch
import torch.nn as nn


class A(nn.Module):
    def __init__(self, d=32, h=4):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.h = h

    def forward(self, x, y):
        B, L, _ = x.shape
        _, S, _ = y.shape
        queries = self.q(x).view(B, L, self.h, -1)
        keys = self.k(y).view(B, S, self.h, -1)
        values = self.v(y).view(B, S, self.h, -1)
        E = queries.shape[-1]
        scale = 1. / math.sqrt(E)
        V = nn.functional.scaled_dot_product_attention(
            queries.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), scale=scale
        ).transpose(1, 2).clone(memory_format=torch.contiguous_format)
        return V.contiguous().view(B, L, -1)


def example():
    return A(), (torch.randn(2, 7, 32), torch.randn(2, 5, 32))
