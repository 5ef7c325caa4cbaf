import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm, self.linear = nn.LayerNorm(width), nn.Linear(width, width)
        self.drop = nn.Dropout(0.1)
        self.register_buffer("mask", torch.ones(width))

    def forward(self, x, scale=1.0):
        return x + self.drop(self.linear(self.norm(x)) * self.mask * scale)


class Net(nn.Module):
    def __init__(self, width=64, depth=4):
        super().__init__()
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.tail = nn.Sequential(nn.Linear(width, width), nn.ReLU())
        self.use_checkpoint = True

    def forward(self, x):
        for block in self.blocks:
            if self.use_checkpoint and self.training:
                x = block(x, scale=0.5)
            else:
                x = block(x, scale=0.5)
        x = (lambda inner: torch.tanh(inner))(x)
        return self.tail(x)
