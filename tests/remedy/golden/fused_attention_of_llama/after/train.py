import math
import torch
import torch.nn as nn
import torch.nn.functional as F


def repeat_kv(x, n):
    b, h, s, d = x.shape
    return x[:, :, None].expand(b, h, n, s, d).reshape(b, h * n, s, d)


class Attention(nn.Module):
    def __init__(self, dim=32, n_heads=4, n_kv=2):
        super().__init__()
        self.n_heads, self.n_kv, self.head_dim = n_heads, n_kv, dim // n_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, n_kv * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv * self.head_dim, bias=False)
        self.wo = nn.Linear(dim, dim, bias=False)

    def forward(self, x, causal=True):
        bsz, seqlen, _ = x.shape
        xq, xk, xv = self.wq(x), self.wk(x), self.wv(x)
        xq = xq.view(bsz, seqlen, self.n_heads, self.head_dim).transpose(1, 2)
        keys = repeat_kv(xk.view(bsz, seqlen, self.n_kv, self.head_dim).transpose(1, 2), 2)
        values = repeat_kv(xv.view(bsz, seqlen, self.n_kv, self.head_dim).transpose(1, 2), 2)
        output = F.scaled_dot_product_attention(
            xq, keys, values,
            attn_mask=torch.full((seqlen, seqlen), float("-inf")).triu(1) == 0 if causal else None,
            scale=1.0 / math.sqrt(self.head_dim),
        )  # (bs, n_local_heads, seqlen, head_dim)
        output = output.transpose(1, 2).contiguous().view(bsz, seqlen, -1)
        return self.wo(output)


def example():
    return Attention(), (torch.randn(2, 9, 32),)
