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
        return nn.functional.scaled_dot_product_attention(
            q, k, v,
            attn_mask=(~self.mask[:T, :T]) & (~pad[:, None, :]) if pad is not None else ~self.mask[:T, :T],
        ).clone(memory_format=torch.contiguous_format)


def example():
    pad = torch.zeros(2, 6).bool()
    pad[1, 4:] = True
    return A(), (torch.randn(2, 6, 16), pad)
