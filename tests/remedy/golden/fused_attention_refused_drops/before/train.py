import torch
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, dim, num_heads=8, qkv_bias=False, attn_drop=0., proj_drop=0.):
        super().__init__()
        self.num_heads = num_heads
        self.scale = (dim // num_heads) ** -0.5
        self.qkv = nn.Linear(dim, dim * 3, bias=qkv_bias)
        self.attn_drop = nn.Dropout(attn_drop)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        B, N, C = x.shape
        qkv = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)   # make torchscript happy (cannot use tensor as tuple)
        attn = (q @ k.transpose(-2, -1)) * self.scale
        attn = attn.softmax(dim=-1)
        attn = self.attn_drop(attn)
        x = (attn @ v).transpose(1, 2).reshape(B, N, C)
        return self.proj(x)


class Block(nn.Module):
    def __init__(self, dim, heads, attn_drop=0.):
        super().__init__()
        self.attn = Attention(dim, num_heads=heads, attn_drop=attn_drop)
    def forward(self, x):
        return x + self.attn(x)


class ViT(nn.Module):
    def __init__(self, dim=32, depth=2, attn_drop_rate=0.):
        super().__init__()
        self.blocks = nn.Sequential(*[Block(dim, 4, attn_drop=attn_drop_rate) for i in range(depth)])
    def forward(self, x):
        return self.blocks(x)


def example():
    return ViT(depth=3, attn_drop_rate=0.1), (torch.randn(2, 9, 32),)
