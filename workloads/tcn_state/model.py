"""A temporal convolutional network that predicts the hidden state of a 3-D printer."""

import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

HEADS = ("adhesion_ratio", "internal_stress", "porosity", "dimensional_accuracy", "quality_score")


class TemporalBlock(nn.Module):
    """Two causal, dilated convolutions with a residual connection."""

    def __init__(self, in_channels, out_channels, kernel_size, dilation, dropout):
        super().__init__()
        self.padding = (kernel_size - 1) * dilation
        self.conv1 = weight_norm(
            nn.Conv1d(in_channels, out_channels, kernel_size, padding=self.padding, dilation=dilation)
        )
        self.conv2 = weight_norm(
            nn.Conv1d(out_channels, out_channels, kernel_size, padding=self.padding, dilation=dilation)
        )
        self.dropout = nn.Dropout(dropout)
        self.downsample = nn.Conv1d(in_channels, out_channels, 1) if in_channels != out_channels else None

    def forward(self, x):
        y = self.dropout(torch.relu(self.conv1(x)[..., : -self.padding]))
        y = self.dropout(torch.relu(self.conv2(y)[..., : -self.padding]))
        residual = x if self.downsample is None else self.downsample(x)
        return torch.relu(y + residual)


class AttentionPooling(nn.Module):
    """Weighs the time steps and sums them: (batch, time, channels) -> (batch, channels)."""

    def __init__(self, channels, hidden):
        super().__init__()
        self.score = nn.Sequential(nn.Linear(channels, hidden), nn.Tanh(), nn.Linear(hidden, 1))

    def forward(self, x):
        weights = torch.softmax(self.score(x), dim=1)
        return (weights * x).sum(dim=1)


class ImplicitStateTCN(nn.Module):
    """LayerNorm, temporal blocks with skip concatenation, attention pooling, a shared MLP and five heads.

    Input (batch, time, 12); output a dict of five (batch,) tensors. ``time_stride`` thins the time axis:
    1 at full size, 8 where a CPU has to train it.
    """

    def __init__(self, num_inputs=12, channels=(128, 128, 256), hidden=256, head_hidden=64, kernel_size=3,
                 dropout=0.1, time_stride=1):  # fmt: skip
        super().__init__()
        self.time_stride = time_stride
        self.norm = nn.LayerNorm(num_inputs)
        blocks = []
        for level, out_channels in enumerate(channels):
            in_channels = num_inputs if level == 0 else channels[level - 1]
            blocks.append(TemporalBlock(in_channels, out_channels, kernel_size, 2**level, dropout))
        self.blocks = nn.ModuleList(blocks)
        width = sum(channels)
        self.pool = AttentionPooling(width, hidden)
        self.shared = nn.Sequential(
            nn.Linear(width, hidden), nn.LayerNorm(hidden), nn.ReLU(), nn.Dropout(dropout),
            nn.Linear(hidden, hidden), nn.LayerNorm(hidden), nn.ReLU(),
        )  # fmt: skip
        self.heads = nn.ModuleDict(
            {
                name: nn.Sequential(nn.Linear(hidden, head_hidden), nn.ReLU(), nn.Linear(head_hidden, 1))
                for name in HEADS
            }
        )

    def forward(self, x):
        x = self.norm(x[:, :: self.time_stride]).transpose(1, 2)
        skips = []
        for block in self.blocks:
            x = block(x)
            skips.append(x)
        features = self.shared(self.pool(torch.cat(skips, dim=1).transpose(1, 2)))
        return {name: head(features).squeeze(-1) for name, head in self.heads.items()}
