import torch
import torch.nn as nn
import torch.nn.functional as F


class WindowAttention(nn.Module):
    def __init__(self, dim=32, window_size=(4, 4), num_heads=4):
        super().__init__()
        self.num_heads = num_heads
        head_dim = dim // num_heads
        self.scale = head_dim ** -0.5
        self.table = nn.Parameter(torch.randn((2 * 4 - 1) ** 2, num_heads))
        self.register_buffer("index", torch.randint(0, 49, (16, 16)))
        self.qkv = nn.Linear(dim, dim * 3)
        self.softmax = nn.Softmax(dim=-1)

    def forward(self, x):
        B_, N, C = x.shape
        qkv = self.qkv(x).reshape(B_, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        q = q * self.scale
        relative_position_bias = self.table[self.index.view(-1)].view(N, N, -1)
        relative_position_bias = relative_position_bias.permute(2, 0, 1).contiguous()  # nH, N, N
        x = F.scaled_dot_product_attention(
            q, k, v, attn_mask=relative_position_bias.unsqueeze(0).to(q.dtype), scale=1.0
        ).clone(memory_format=torch.contiguous_format).transpose(1, 2).reshape(B_, N, C)
        return x


def example():
    return WindowAttention(), (torch.randn(3, 16, 32),)
