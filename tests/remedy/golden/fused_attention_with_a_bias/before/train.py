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
        scores = torch.matmul(query_states, key_states.transpose(3, 2))
        pos = torch.arange(L)
        position_bias = self.rel((pos[None] - pos[:, None]).clamp(-31, 31) + 31).permute(2, 0, 1).unsqueeze(0)
        scores += position_bias
        attn_weights = nn.functional.softmax(scores.float(), dim=-1).type_as(scores)
        out = torch.matmul(attn_weights, value_states).transpose(1, 2).contiguous().view(B, L, -1)
        return self.o(out)


def example():
    return T5Attention(), (torch.randn(2, 12, 32),)
