import torch
import torch.nn as nn


class A(nn.Module):
    def __init__(self, d=32, h=4, n=64):
        super().__init__()
        self.c_attn = nn.Linear(d, 3 * d)
        self.h = h
        self.register_buffer("bias", torch.tril(torch.ones((n, n), dtype=torch.bool)).view(1, 1, n, n))

    def _attn(self, query, key, value):
        query_length, key_length = query.size(-2), key.size(-2)
        causal_mask = self.bias[:, :, key_length - query_length : key_length, :key_length]
        mask_value = torch.finfo(query.dtype).min
        mask_value = torch.full([], mask_value, dtype=query.dtype, device=query.device)
        return nn.functional.scaled_dot_product_attention(
            query, key, value, attn_mask=causal_mask, scale=1.0 / (value.size(-1) ** 0.5)
        ).clone(memory_format=torch.contiguous_format)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = self.c_attn(x).split(C, dim=2)
        q, k, v = (t.view(B, T, self.h, -1).transpose(1, 2) for t in (q, k, v))
        return self._attn(q, k, v).transpose(1, 2).reshape(B, T, C)


def example():
    return A(), (torch.randn(2, 17, 32),)
