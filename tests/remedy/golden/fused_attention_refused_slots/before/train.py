import torch
import torch.nn as nn
import torch.nn.functional as F


class Slots(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.q, self.k, self.v = nn.Linear(d, d), nn.Linear(d, d), nn.Linear(d, d)
        self.scale = d ** -0.5
    def forward(self, x, slots):
        k, v, q = self.k(x), self.v(x), self.q(slots)
        dots = torch.einsum('bid,bjd->bij', q, k) * self.scale
        attn = dots.softmax(dim=1) + 1e-8
        attn = attn / attn.sum(dim=-1, keepdim=True)
        return torch.einsum('bjd,bij->bid', v, attn)


def example():
    return Slots(), (torch.randn(2, 9, 16), torch.randn(2, 3, 16))
