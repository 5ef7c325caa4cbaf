import torch
import torch.nn as nn


class T5Attention(nn.Module):
    def __init__(self, d=32, h=4):
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(d, d, bias=False) for _ in range(4))
        self.n_heads, self.dk = h, d // h
        self.rel = nn.Embedding(64, h)

    def forward(self, hidden):
        B, L, _ = hidden.shape
        def shape(states):
            return states.view(B, -1, self.n_heads, self.dk).transpose(1, 2)
        query_states = shape(self.q(hidden))
        key_states = shape(self.k(hidden))
        value_states = shape(self.v(hidden))
        pos = torch.arange(L)
        position_bias = self.rel((pos[None] - pos[:, None]).clamp(-31, 31) + 31).permute(2, 0, 1).unsqueeze(0)
        out = nn.functional.scaled_dot_product_attention(
            query_states, key_states.transpose(3, 2).transpose(-2, -1), value_states,
            attn_mask=position_bias.to(query_states.dtype),
            scale=1.0,
        ).transpose(1, 2).contiguous().view(B, L, -1)
        return self.o(out)


def example():
    return T5Attention(), (torch.randn(2, 12, 32),)
