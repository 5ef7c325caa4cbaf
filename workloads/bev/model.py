"""One camera picture to a map from above: a Swin transformer, lift-splat, a top-down network.

``Swin`` sees, ``LiftSplat`` guesses a depth for every feature and drops it on the ground, ``Topdown`` reads
the map. Written from the papers (Liu et al. 2021; Philion and Fidler 2020; Roddick and Cipolla 2020).
"""

import torch
from torch import nn
from torch.nn import functional

from data import BEV_SHAPE, NUM_CLASSES, X_RANGE, Z_RANGE

WINDOW = 7
NUM_DEPTHS = 49  # 1, 2 .. 49 m
CELL = 0.5  # metres of a cell of the pooled map; the labels have half of that
MAP_SHAPE = (BEV_SHAPE[0] // 2, BEV_SHAPE[1] // 2)


# -- Swin ---------------------------------------------------------------------------------------------------


class WindowAttention(nn.Module):
    """Self-attention within windows of 7 x 7, with a learned bias for every relative position."""

    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.project = nn.Linear(dim, dim)
        self.bias = nn.Parameter(torch.zeros((2 * WINDOW - 1) ** 2, num_heads))
        nn.init.trunc_normal_(self.bias, std=0.02)
        place = torch.stack(torch.meshgrid(torch.arange(WINDOW), torch.arange(WINDOW), indexing="ij"))
        apart = place.flatten(1)[:, :, None] - place.flatten(1)[:, None] + WINDOW - 1
        self.register_buffer("relative", apart[0] * (2 * WINDOW - 1) + apart[1], persistent=False)

    def forward(self, windows, mask):
        """(num, 49, dim), and what may not be seen, (num per picture, 49, 49) or None."""
        num, size, dim = windows.shape
        q, k, v = self.qkv(windows).reshape(num, size, 3, self.num_heads, -1).permute(2, 0, 3, 1, 4)
        bias = self.bias[self.relative].permute(2, 0, 1)[None]
        if mask is not None:
            bias = (bias + mask[:, None]).repeat(num // len(mask), 1, 1, 1)
        seen = functional.scaled_dot_product_attention(q, k, v, attn_mask=bias.to(q.dtype))
        return self.project(seen.transpose(1, 2).reshape(num, size, dim))


class SwinBlock(nn.Module):
    def __init__(self, dim, num_heads, shift):
        super().__init__()
        self.shift = shift
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = WindowAttention(dim, num_heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        """(B, H, W, dim)"""
        _, height, width, _ = x.shape
        y = functional.pad(self.norm1(x), (0, 0, 0, -width % WINDOW, 0, -height % WINDOW))
        shift = self.shift if min(height, width) > WINDOW else 0  # one window sees everything
        y = y.roll((-shift, -shift), dims=(1, 2))
        mask = shift_mask(y.shape[1], y.shape[2], shift, x.device) if shift else None
        y = join(self.attention(split(y), mask), y.shape).roll((shift, shift), dims=(1, 2))
        x = x + y[:, :height, :width]
        return x + self.mlp(self.norm2(x))


def split(x):
    """(B, H, W, C) to windows (B * H/7 * W/7, 49, C)."""
    b, h, w, c = x.shape
    x = x.reshape(b, h // WINDOW, WINDOW, w // WINDOW, WINDOW, c)
    return x.transpose(2, 3).reshape(-1, WINDOW * WINDOW, c)


def join(windows, shape):
    b, h, w, c = shape
    x = windows.reshape(b, h // WINDOW, w // WINDOW, WINDOW, WINDOW, c)
    return x.transpose(2, 3).reshape(shape)


def shift_mask(height, width, shift, device):
    """-100 between cells of a window that were not neighbours before the picture was rolled."""
    region = torch.zeros(1, height, width, 1, device=device)
    for axis, size in ((1, height), (2, width)):
        edge = torch.arange(size, device=device)
        part = (edge >= size - WINDOW).float() + (edge >= size - shift).float()
        region = 3 * region + part.reshape([-1 if i == axis else 1 for i in range(4)])
    region = split(region).squeeze(-1)
    return (region[:, None] != region[:, :, None]).float() * -100.0


class PatchMerging(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm = nn.LayerNorm(4 * dim)
        self.reduce = nn.Linear(4 * dim, 2 * dim, bias=False)

    def forward(self, x):
        x = functional.pad(x, (0, 0, 0, x.shape[2] % 2, 0, x.shape[1] % 2))
        parts = [x[:, i::2, j::2] for j in (0, 1) for i in (0, 1)]
        return self.reduce(self.norm(torch.cat(parts, dim=-1)))


class Swin(nn.Module):
    """(B, 3, H, W) to (B, 8 * embed_dim, H/32, W/32), sizes rounded up."""

    def __init__(self, embed_dim=96, depths=(2, 2, 6, 2), num_heads=(3, 6, 12, 24)):
        super().__init__()
        self.embed = nn.Conv2d(3, embed_dim, 4, stride=4)
        self.embed_norm = nn.LayerNorm(embed_dim)
        self.stages = nn.ModuleList()
        for level, (depth, heads) in enumerate(zip(depths, num_heads, strict=True)):
            dim = embed_dim * 2**level
            merge = [PatchMerging(dim // 2)] if level else []
            blocks = [SwinBlock(dim, heads, WINDOW // 2 * (i % 2)) for i in range(depth)]
            self.stages.append(nn.Sequential(*merge, *blocks))
        self.norm = nn.LayerNorm(dim)
        self.out_channels = dim

    def forward(self, images):
        x = self.embed_norm(self.embed(images).permute(0, 2, 3, 1))
        for stage in self.stages:
            x = stage(x)
        return self.norm(x).permute(0, 3, 1, 2)


# -- lift, splat --------------------------------------------------------------------------------------------


def frustum(image_size, feature_size):
    """Points (depths, h, w, 3) of u, v in pixels and depth in metres."""
    (width, height), (h, w) = image_size, feature_size
    depth = torch.arange(1.0, NUM_DEPTHS + 1)[:, None, None].expand(-1, h, w)
    u = torch.linspace(0, width - 1, w)[None, None].expand(NUM_DEPTHS, h, w)
    v = torch.linspace(0, height - 1, h)[None, :, None].expand(NUM_DEPTHS, h, w)
    return torch.stack([u, v, depth], dim=-1)


def cells_of(points, calib):
    """The cell of the map that each point of each camera (B, 3, 3) falls into: (B, points); -1 is outside."""
    rays = torch.cat([points[..., :2] * points[..., 2:], points[..., 2:]], dim=-1).reshape(-1, 3)
    place = torch.einsum("bij,nj->bni", torch.inverse(calib), rays)
    column = ((place[..., 0] - X_RANGE[0]) / CELL).floor().long()
    row = ((place[..., 2] - Z_RANGE[0]) / CELL).floor().long()
    rows, columns = MAP_SHAPE
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns)
    return torch.where(inside, row * columns + column, -1)


class LiftSplat(nn.Module):
    """Features (B, C, h, w) to a map (B, channels, 98, 100): each spread over 49 depths, summed per cell."""

    def __init__(self, in_channels, channels, image_size):
        super().__init__()
        self.channels, self.image_size = channels, image_size
        self.depthnet = nn.Conv2d(in_channels, NUM_DEPTHS + channels, 1)
        self.num_cameras = 0

    def remember(self, calibs, feature_size):
        """Keep the cells of every camera, sorted, for all steps to come: intrinsics repeat."""
        cells = cells_of(frustum(self.image_size, feature_size).to(calibs.device), calibs)
        outside = MAP_SHAPE[0] * MAP_SHAPE[1]
        cells, order = cells.where(cells >= 0, outside).sort(dim=1, stable=True)
        self.num_cameras = len(calibs)
        self.register_buffer("cells", cells, persistent=False)
        self.register_buffer("order", order, persistent=False)

    def forward(self, features, cameras):
        """``cameras``: intrinsics (B, 3, 3); after ``remember`` their numbers (B,)."""
        depth, context = self.depthnet(features).split([NUM_DEPTHS, self.channels], dim=1)
        depth = depth.float().softmax(dim=1)
        splat = self.splat_remembered if self.num_cameras else self.splat_anew
        return (
            splat(depth, context.float(), cameras).reshape(-1, *MAP_SHAPE, self.channels).permute(0, 3, 1, 2)
        )

    def splat_anew(self, depth, context, calib):
        """Geometry, sorting and the cumulative-sum trick, in every step."""
        num_samples, _, h, w = depth.shape
        num_cells = MAP_SHAPE[0] * MAP_SHAPE[1]
        points = frustum(self.image_size, (h, w)).to(depth.device)
        cells = cells_of(points, calib)
        volume = depth[:, None] * context[:, :, None]
        values = volume.permute(0, 2, 3, 4, 1).reshape(-1, self.channels)
        batch = torch.arange(num_samples, device=depth.device)[:, None]
        ranks = (cells + batch * num_cells).flatten()
        inside = (cells >= 0).flatten()
        values, ranks = values[inside], ranks[inside]
        order = ranks.argsort()
        values, ranks = values[order], ranks[order]
        values = values.cumsum(0)
        last = torch.ones_like(ranks, dtype=torch.bool)
        last[:-1] = ranks[1:] != ranks[:-1]
        values, ranks = values[last], ranks[last]
        values = torch.cat([values[:1], values[1:] - values[:-1]])
        return values.new_zeros(num_samples * num_cells, self.channels).index_copy(0, ranks, values)

    def splat_remembered(self, depth, context, cameras):
        """The same sums from what ``remember`` kept, one addition per point, in the order of the cells."""
        num_samples, _, h, w = depth.shape
        num_cells = MAP_SHAPE[0] * MAP_SHAPE[1] + 1  # the last takes what falls outside
        order, cells = self.order[cameras], self.cells[cameras]
        weight = depth.flatten(1).gather(1, order)
        pixel = (order % (h * w))[..., None].expand(-1, -1, self.channels)
        values = context.flatten(2).transpose(1, 2).gather(1, pixel) * weight[..., None]
        cells = cells + num_cells * torch.arange(num_samples, device=cells.device)[:, None]
        pooled = values.new_zeros(num_samples * num_cells, self.channels)
        pooled = pooled.index_add(0, cells.flatten(), values.flatten(0, 1))
        return pooled.reshape(num_samples, num_cells, self.channels)[:, :-1]


# -- top-down -----------------------------------------------------------------------------------------------


def norm(channels):
    return nn.GroupNorm(min(16, channels), channels)


class Bottleneck(nn.Module):
    """1x1, 3x3, 1x1 with a shortcut; ``up`` doubles the resolution."""

    def __init__(self, in_channels, width, up=False):
        super().__init__()
        out = 4 * width
        middle = (
            nn.ConvTranspose2d(width, width, 3, stride=2, padding=1, output_padding=1, bias=False)
            if up
            else nn.Conv2d(width, width, 3, padding=1, bias=False)
        )
        self.body = nn.Sequential(
            nn.Conv2d(in_channels, width, 1, bias=False), norm(width), nn.ReLU(),
            middle, norm(width), nn.ReLU(),
            nn.Conv2d(width, out, 1, bias=False), norm(out),
        )  # fmt: skip
        if up:
            shortcut = nn.ConvTranspose2d(in_channels, out, 2, stride=2, bias=False)
        elif in_channels != out:
            shortcut = nn.Conv2d(in_channels, out, 1, bias=False)
        else:
            shortcut = None
        self.shortcut = nn.Sequential(shortcut, norm(out)) if shortcut else nn.Identity()

    def forward(self, x):
        return torch.relu(self.body(x) + self.shortcut(x))


class Topdown(nn.Sequential):
    """A map (B, C, 98, 100) to class scores (B, 14, 196, 200)."""

    def __init__(self, in_channels, width, layers=(4, 4)):
        first = [Bottleneck(in_channels if i == 0 else 4 * width, width) for i in range(layers[0])]
        half = width // 2
        second = [Bottleneck(4 * (width if i == 0 else half), half, up=i == 0) for i in range(layers[1])]
        super().__init__(*first, *second, nn.Conv2d(4 * half, NUM_CLASSES, 1))


class BevNet(nn.Module):
    """Pictures (B, 3, H, W) to class scores (B, 14, 196, 200); 29.5 million parameters with the defaults."""

    def __init__(
        self,
        image_size=(800, 600),
        embed_dim=96,
        depths=(2, 2, 6, 2),
        num_heads=(3, 6, 12, 24),
        lift_channels=64,
        topdown_width=128,
        topdown_layers=(4, 4),
    ):
        super().__init__()
        self.image_size = tuple(image_size)
        self.backbone = Swin(embed_dim, depths, num_heads)
        self.lift = LiftSplat(self.backbone.out_channels, lift_channels, self.image_size)
        self.topdown = Topdown(lift_channels, topdown_width, topdown_layers)
        nn.init.constant_(self.topdown[-1].bias, -2.0)  # most cells are none of a class

    def remember(self, calibs, sort_once=True):
        """Let ``forward`` take the numbers of cameras (B,), given the intrinsics (N, 3, 3) of all.

        ``sort_once`` computes their geometry here and keeps it, sorted; otherwise every step makes its own.
        """
        self.register_buffer("calibs", calibs, persistent=False)
        if sort_once:
            width, height = self.image_size
            self.lift.remember(calibs, (-(-height // 32), -(-width // 32)))

    def forward(self, images, cameras):
        if cameras.dim() == 1 and not self.lift.num_cameras:
            cameras = self.calibs[cameras]
        return self.topdown(self.lift(self.backbone(images), cameras)).float()
