import math
import torch
import torch.nn as nn
import torch.nn.functional as F



from dataclasses import dataclass


@dataclass
class GPTConfig:
    n_embd: int = 32
    n_head: int = 4
    dropout: float = 0.1


class Attn(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.resid_dropout = nn.Dropout(config.dropout)
        self.dropout = config.dropout
        self.n_embd = config.n_embd

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        return self.resid_dropout(F.scaled_dot_product_attention(
            q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1), is_causal=True
        ).squeeze(1).clone(memory_format=torch.contiguous_format))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attn = Attn(config)
    def forward(self, x):
        return self.attn(x)


def example():
    return Block(GPTConfig(n_embd=32, dropout=0.0)), (torch.randn(2, 5, 32),)
