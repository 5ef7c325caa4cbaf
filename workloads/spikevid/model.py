"""A small video restoration transformer with a spike branch.

Frames (B, T, 3, H, W) and voxels (B, T, NUM_BINS, H, W) to sharp frames (B, T, 3, H, W). Seven stages at 1,
1/2, 1/4, 1/8, 1/4, 1/2 and 1 of the size, then Stage 8 at full size; spikes join in the first four.
"""

import math
from contextlib import nullcontext

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from data import NUM_BINS

#: Size of each stage: frames divided by two to this power.
LEVELS = (0, 1, 2, 3, 2, 1, 0)
#: Neighbouring frames differ little, and say most: enlarged, their differences are learned from soon.
DIFFERENCE_SCALE = 8.0


def no_timer(name):
    return nullcontext()


class Attention(nn.Module):
    """Scaled dot-product attention of (N, L, C) to (N, M, C)."""

    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.query, self.keys_values, self.out = (
            nn.Linear(dim, dim),
            nn.Linear(dim, 2 * dim),
            nn.Linear(dim, dim),
        )

    def forward(self, x, source=None):
        source = x if source is None else source
        query, key, value = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query(x), *self.keys_values(source).chunk(2, dim=-1))
        )
        found = functional.scaled_dot_product_attention(query, key, value)
        return self.out(found.transpose(1, 2).flatten(2))


def to_windows(x, window, frames):
    """(B, T, H, W, C) to (N, frames * window ** 2, C), H and W filled up; and the filled-up shape."""
    height, width = x.shape[2:4]
    x = functional.pad(x, (0, 0, 0, -width % window, 0, -height % window))
    batch, time, height, width, _ = x.shape
    x = x.unflatten(3, (width // window, window)).unflatten(2, (height // window, window))
    x = x.unflatten(1, (time // frames, frames)).permute(0, 1, 3, 5, 2, 4, 6, 7)
    return x.flatten(0, 3).flatten(1, 3), (batch, time, height, width)


def from_windows(x, window, frames, filled, size):
    batch, time, height, width = filled
    rows, columns = height // window, width // window
    x = x.reshape(batch, time // frames, rows, columns, frames, window, window, -1)
    x = x.permute(0, 1, 4, 2, 5, 3, 6, 7).reshape(batch, time, height, width, -1)
    return x[:, :, : size[0], : size[1]]


class Block(nn.Module):
    """Attention in windows, then a gated MLP. ``mutual``: to the neighbouring frame as well as to itself."""

    def __init__(self, dim, heads, window, mutual, index, checkpoints):
        super().__init__()
        self.window, self.mutual, self.odd = window, mutual, index % 2 == 1
        self.checkpoint_attn, self.checkpoint_ffn = checkpoints
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.other = Attention(dim, heads) if mutual else None
        self.gate, self.down = nn.Linear(dim, 4 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x):
        x = x + self.maybe(self.checkpoint_attn, self.attend, x)
        return x + self.maybe(self.checkpoint_ffn, self.feed_forward, x)

    def maybe(self, recompute, part, x):
        if recompute and torch.is_grad_enabled():
            return checkpoint(part, x, use_reentrant=False)
        return part(x)

    def attend(self, x):
        size = x.shape[2:4]
        x = self.norm1(x)
        shift = self.window // 2 if self.odd and min(size) > self.window else 0
        x = torch.roll(x, (-shift, -shift), (2, 3))
        frames = 1 if self.mutual else x.shape[1]
        inside, filled = to_windows(x, self.window, frames)
        found = self.attention(inside)
        if self.mutual:  # every other block looks to the other side
            neighbour = torch.roll(x, 1 if self.odd else -1, 1)
            found = found + self.other(inside, to_windows(neighbour, self.window, frames)[0])
        found = from_windows(found, self.window, frames, filled, size)
        return torch.roll(found, (shift, shift), (2, 3))

    def feed_forward(self, x):
        gate, value = self.gate(self.norm2(x)).chunk(2, dim=-1)
        return self.down(functional.gelu(gate) * value)


def warp(x, flow):
    """(N, C, H, W) looked up at its own places plus ``flow`` (N, 2, H, W) in pixels (x, y).

    The flow stays float32 under autocast: half precision has no places between 128 and 129 but eighths.
    """
    height, width = x.shape[-2:]
    rows = torch.arange(height, device=x.device, dtype=flow.dtype)
    columns = torch.arange(width, device=x.device, dtype=flow.dtype)
    at_x = (flow[:, 0] + columns) * (2 / max(1, width - 1)) - 1
    at_y = (flow[:, 1] + rows[:, None]) * (2 / max(1, height - 1)) - 1
    grid = torch.stack([at_x, at_y], dim=-1)
    return functional.grid_sample(x, grid, padding_mode="border", align_corners=True)


class Flow(nn.Module):
    """Flow from a frame to another in three levels, coarse to fine, each correcting the one above."""

    def __init__(self, dim=16):
        super().__init__()
        self.levels = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, dim, 7, padding=3), nn.ReLU(), nn.Conv2d(dim, 2, 7, padding=3))
            for _ in range(3)
        )

    def forward(self, one, other):
        """Flow (N, 2, h, w) at full size, a half, a quarter and an eighth."""
        flow = one.new_zeros(len(one), 2, one.shape[-2] // 4, one.shape[-1] // 4)
        found = []
        for level, correct in zip((2, 1, 0), self.levels, strict=True):
            here = [functional.avg_pool2d(x, 2**level) if level else x for x in (one, other)]
            if found:
                flow = 2 * functional.interpolate(flow, scale_factor=2, mode="bilinear")
            flow = flow + correct(torch.cat([here[0], warp(here[1], flow), flow], dim=1))
            found.insert(0, flow)
        return [*found, functional.avg_pool2d(found[-1], 2) / 2]


class DeformableWarp(nn.Module):
    """The neighbour on one side, fetched along the flow and ``taps`` learned offsets with weights."""

    def __init__(self, dim, taps=4):
        super().__init__()
        self.taps = taps
        self.offsets = nn.Conv2d(2 * dim + 2, 3 * taps, 3, padding=1)
        self.merge = nn.Conv2d(taps * dim, dim, 1)

    def forward(self, x, neighbour, flow):
        near = warp(neighbour, flow)
        offsets, weights = self.offsets(torch.cat([x, near, flow], 1)).split([2 * self.taps, self.taps], 1)
        offsets, weights = 4 * torch.tanh(offsets), torch.sigmoid(weights)
        flows = (flow[:, None] + offsets.unflatten(1, (self.taps, 2))).flatten(0, 1)
        found = warp(neighbour.repeat_interleave(self.taps, 0), flows).unflatten(0, (-1, self.taps))
        return self.merge((found * weights[:, :, None]).flatten(1, 2))


class Stage(nn.Module):
    """Blocks (three quarters of them mutual), then both neighbours warped here and merged."""

    def __init__(self, dim, heads, depth, window, checkpoints):
        super().__init__()
        mutual = round(0.75 * depth)
        self.blocks = nn.ModuleList(
            Block(dim, heads, window, index < mutual, index, checkpoints) for index in range(depth)
        )
        self.warps = nn.ModuleList(DeformableWarp(dim) for _ in range(2))
        self.merge = nn.Conv2d(3 * dim, dim, 1)

    def forward(self, x, flows):
        """``x`` (B, T, C, H, W); ``flows``: to the frame before and to the one after, (B * T, 2, H, W)."""
        y = x.permute(0, 1, 3, 4, 2)
        for block in self.blocks:
            y = block(y)
        x = x + y.permute(0, 1, 4, 2, 3)
        flat = x.flatten(0, 1)
        near = [
            warped(flat, neighbour(x, side).flatten(0, 1), flow)
            for warped, side, flow in zip(self.warps, (-1, 1), flows, strict=True)
        ]
        return x + self.merge(torch.cat([flat, *near], 1)).unflatten(0, x.shape[:2])


def neighbour(x, side):
    """The frame before (-1) or after (1) each of (B, T, ...); the first and last have themselves."""
    if side < 0:
        return torch.cat([x[:, :1], x[:, :-1]], dim=1)
    return torch.cat([x[:, 1:], x[:, -1:]], dim=1)


class PixelAttention(nn.Module):
    """Attention over time at every pixel: of spikes to themselves (TSA) or of frames to spikes (fusion).

    It goes over the picture in chunks. With ``adaptive_chunk`` they shrink until no call has more than
    ``max_batch_tokens`` tokens; ``chunk_shape`` is ``square`` or ``rows``.
    """

    def __init__(self, dim, heads, adaptive_chunk, max_batch_tokens, chunk_size, chunk_shape):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(dim), Attention(dim, heads)
        self.adaptive, self.most, self.size, self.shape = (
            adaptive_chunk, max_batch_tokens, chunk_size, chunk_shape,
        )  # fmt: skip

    def chunk(self, batch, time, height, width):
        """(rows, columns) of a chunk."""
        rows, columns = (self.size, self.size) if self.shape == "square" else (self.size, width)
        if self.adaptive:
            pixels = max(1, self.most // (batch * time))
            if self.shape == "square":
                rows = columns = min(self.size, math.isqrt(pixels))
            else:
                rows = min(self.size, max(1, pixels // width))
        return min(rows, height), min(columns, width)

    def forward(self, x, source=None):
        """``x`` (B, T, C, H, W)."""
        batch, time, _, height, width = x.shape
        rows, columns = self.chunk(batch, time, height, width)
        bands = []
        for top in range(0, height, rows):
            band = []
            for left in range(0, width, columns):
                place = (..., slice(top, top + rows), slice(left, left + columns))
                band.append(self.attend(x[place], None if source is None else source[place]))
            bands.append(torch.cat(band, dim=-1))
        return x + torch.cat(bands, dim=-2)

    def attend(self, x, source):
        batch, _, _, height, width = x.shape
        tokens, others = (
            None if one is None else self.norm(one.permute(0, 3, 4, 1, 2).flatten(0, 2))
            for one in (x, source)
        )
        found = self.attention(tokens, others)
        return found.unflatten(0, (batch, height, width)).permute(0, 3, 4, 1, 2)


class SpikeBranch(nn.Module):
    """Voxels as features at four sizes, with attention over time at each."""

    def __init__(self, dim, chunks):
        super().__init__()
        # A convolution over three frames, as one over the channels of all three: on a CPU much faster.
        self.first = nn.Conv2d(3 * NUM_BINS, dim, 3, padding=1)
        self.down = nn.ModuleList(nn.Conv2d(dim, dim, 3, stride=2, padding=1) for _ in range(3))
        self.residual = nn.ModuleList(nn.Conv2d(dim, dim, 3, padding=1) for _ in range(4))
        self.attention = nn.ModuleList(PixelAttention(dim, **chunks) for _ in range(4))

    def forward(self, voxel, timer):
        three = torch.cat([neighbour(voxel, -1), voxel, neighbour(voxel, 1)], dim=2)
        x = self.first(three.flatten(0, 1)).unflatten(0, voxel.shape[:2])
        found = []
        for level, (residual, attention) in enumerate(zip(self.residual, self.attention, strict=True)):
            flat = x.flatten(0, 1)
            flat = self.down[level - 1](flat) if level else flat
            x = (flat + functional.gelu(residual(flat))).unflatten(0, x.shape[:2])
            with timer(f"Spike TSA {level + 1}"):
                x = attention(x)
            found.append(x)
        return found


class SpikeVRT(nn.Module):
    """``depths``: blocks of Stages 1-7, then of each group of Stage 8 (one or more).

    ``fuse`` and ``spike_tsa`` are the arguments of :class:`PixelAttention`. ``timer(name)`` gives a context
    that is entered for each stage.
    """

    def __init__(
        self, *, dim, heads, depths, window, fuse, spike_tsa, checkpoint_attn=False, checkpoint_ffn=False
    ):
        super().__init__()
        checkpoints = checkpoint_attn, checkpoint_ffn
        self.flow = Flow()
        self.spikes = SpikeBranch(dim, spike_tsa)
        self.conv_first = nn.Conv2d(9, dim, 3, padding=1)
        self.stages = nn.ModuleList(Stage(dim, heads, depth, window, checkpoints) for depth in depths[:7])
        self.fusions = nn.ModuleList(PixelAttention(dim, **fuse) for _ in range(4))
        self.down = nn.ModuleList(nn.Conv2d(4 * dim, dim, 1) for _ in range(3))
        self.up = nn.ModuleList(nn.Conv2d(dim, 4 * dim, 1) for _ in range(3))
        self.stage8 = nn.ModuleList(
            nn.Sequential(
                *(Block(dim, heads, window, False, index, checkpoints) for index in range(depth)),
                nn.Linear(dim, dim),
            )
            for depth in depths[7:]
        )
        self.norm = nn.LayerNorm(dim)
        self.conv_last = nn.Conv2d(dim, 3, 3, padding=1)
        nn.init.constant_(self.norm.weight, 0.1)
        nn.init.zeros_(self.conv_last.weight)
        nn.init.zeros_(self.conv_last.bias)

    def forward(self, blur, voxel, timer=no_timer):
        shape = blur.shape[:2]
        flat = blur.flatten(0, 1)
        with timer("Flow"):
            flows = [self.flow(flat, neighbour(blur, side).flatten(0, 1)) for side in (-1, 1)]
        with timer("Spike branch"):
            spikes = self.spikes(voxel, timer)
        near = [
            warp(neighbour(blur, side).flatten(0, 1), flow[0])
            for side, flow in zip((-1, 1), flows, strict=True)
        ]
        changes = [DIFFERENCE_SCALE * (warped - flat) for warped in near]
        x = first = self.conv_first(torch.cat([flat - 0.5, *changes], dim=1)).unflatten(0, shape)
        kept = []
        for index, (stage, level) in enumerate(zip(self.stages, LEVELS, strict=True)):
            name = f"Stage {index + 1}"
            if 1 <= index <= 3:
                kept.append(x)
                smaller = functional.pixel_unshuffle(x.flatten(0, 1), 2)
                x = self.down[index - 1](smaller).unflatten(0, shape)
            elif index > 3:
                larger = functional.pixel_shuffle(self.up[index - 4](x.flatten(0, 1)), 2)
                x = larger.unflatten(0, shape) + kept.pop()
            with timer(name):
                x = stage(x, [side[level] for side in flows])
            if index < 4:
                with timer(f"{name} fusion"):
                    x = self.fusions[index](x, spikes[index])
        with timer("Stage 8"):
            y = x.permute(0, 1, 3, 4, 2)
            for group in self.stage8:
                y = y + group(y)
            x = first + self.norm(y).permute(0, 1, 4, 2, 3)
        return blur + self.conv_last(x.flatten(0, 1)).unflatten(0, shape)
