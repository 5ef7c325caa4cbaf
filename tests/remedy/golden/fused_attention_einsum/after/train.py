import torch
import torch.nn as nn


class A(nn.Module):
    def __init__(self, d=32, h=4):
        super().__init__()
        self.to_qkv = nn.Linear(d, 3 * d)
        self.heads, self.scale = h, (d // h) ** -0.5

    def forward(self, x, mask=None):
        b, n, d = x.shape
        q, k, v = map(lambda t: t.view(b, n, self.heads, -1).transpose(1, 2), self.to_qkv(x).chunk(3, dim=-1))
        if mask is not None:
            max_neg_value = float('-inf')
            mask = mask[:, None, None, :]
        out = nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, scale=self.scale
        ).clone(memory_format=torch.contiguous_format)
        return out.transpose(1, 2).reshape(b, n, d)


def example():
    m = torch.ones(2, 7).bool()
    m[0, 3:] = False
    return A(), (torch.randn(2, 7, 32), m)
