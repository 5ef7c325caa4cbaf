import torch
import torch.nn as nn
import torch.nn.functional as F


class A(nn.Module):
    def __init__(self, d=16, n=32):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.d = d

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q = F.softmax(q, dim=-1)
        k = F.softmax(k, dim=1)
        context = torch.einsum("bnd,bne->bde", k, v)
        return torch.einsum("bnd,bde->bne", q, context)


def example():
    return A(), (torch.randn(2, 6, 16),)
