import torch
import torch.nn as nn
import torch.nn.functional as F


class A(nn.Module):
    def __init__(self, d=16, n=32):
        super().__init__()
        self.qkv = nn.Linear(d, 3 * d)
        self.d = d

    def forward(self, x, mask):
        B, T, C = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        att = q @ k.transpose(-2, -1)
        if mask is not None:
            nW = mask.shape[0]
            att = att.view(B // nW, nW, T, T) + mask.unsqueeze(0)
            att = att.view(-1, T, T)
            att = F.softmax(att, -1)
        else:
            att = F.softmax(att, -1)
        return att @ v


def example():
    return A(), (torch.randn(2, 6, 16), torch.randn(2, 6, 6))
