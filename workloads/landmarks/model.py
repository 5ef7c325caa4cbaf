"""A small high-resolution network: four resolutions side by side, a pyramid on top, two heads at stride 4."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

from data import STRIDE


def conv(in_channels, out_channels, kernel_size=1, stride=1, groups=1, act=True):
    padding = kernel_size // 2
    convolution = nn.Conv2d(
        in_channels, out_channels, kernel_size, stride, padding, groups=groups, bias=False
    )
    return nn.Sequential(convolution, nn.BatchNorm2d(out_channels), *([nn.ReLU()] if act else []))


class CrossResolutionWeighting(nn.Module):
    """Weighs the channels of all resolutions by what all of them see."""

    def __init__(self, channels, expansion=2):
        super().__init__()
        total = sum(channels)
        self.channels = list(channels)
        self.mix = nn.Sequential(
            nn.Linear(total, expansion * total), nn.ReLU(), nn.Linear(expansion * total, total)
        )

    def forward(self, xs):
        seen = torch.cat([x.mean(dim=(2, 3)) for x in xs], dim=1)
        weights = self.mix(seen).sigmoid().split(self.channels, dim=1)
        return [x * w[:, :, None, None] for x, w in zip(xs, weights, strict=True)]


class Block(nn.Module):
    """Half the channels of a resolution pass, half are weighed, convolved and mixed; both are shuffled."""

    def __init__(self, channels):
        super().__init__()
        halves = [c // 2 for c in channels]
        self.weighting = CrossResolutionWeighting(halves)
        self.spatial = nn.ModuleList(conv(h, h, 3, groups=h, act=False) for h in halves)
        self.pointwise = nn.ModuleList(conv(h, h) for h in halves)

    def forward(self, xs):
        kept, worked = zip(*(x.chunk(2, dim=1) for x in xs), strict=True)
        worked = self.weighting(worked)
        worked = [p(s(w)) for p, s, w in zip(self.pointwise, self.spatial, worked, strict=True)]
        return [torch.stack(pair, dim=2).flatten(1, 2) for pair in zip(kept, worked, strict=True)]


class Fusion(nn.Module):
    """Adds every resolution to every other."""

    def __init__(self, channels):
        super().__init__()
        self.paths = nn.ModuleList(
            nn.ModuleList(self._path(channels, source, target) for source in range(len(channels)))
            for target in range(len(channels))
        )

    @staticmethod
    def _path(channels, source, target):
        if source == target:
            return nn.Identity()
        if source > target:  # from coarse to fine: enlarged in forward
            return conv(channels[source], channels[target], act=False)
        c, steps = channels[source], []
        for level in range(source, target):
            out = channels[target] if level == target - 1 else c
            steps += [conv(c, c, 3, 2, groups=c, act=False), conv(c, out, act=level < target - 1)]
        return nn.Sequential(*steps)

    def forward(self, xs):
        fused = []
        for target, paths in enumerate(self.paths):
            ys = [path(x) for path, x in zip(paths, xs, strict=True)]
            fused.append(torch.relu(sum(functional.interpolate(y, xs[target].shape[-2:]) for y in ys)))
        return fused


class LandmarkNet(nn.Module):
    """(B, 4, H, W) -> heatmaps (B, 2, H/4, W/4) in 0..1 and offsets (B, 4, H/4, W/4) in cells.

    ``channels`` are those at strides 4, 8, 16 and 32; ``modules`` the number of modules (two blocks and a
    fusion) of the stages with two, three and four resolutions. The defaults have 3.5 million parameters and
    0.46 G multiply-adds on 256 x 512 pixels.
    """

    def __init__(self, channels=(40, 80, 128, 480), modules=(1, 2, 2), pyramid=32):
        super().__init__()
        stem = channels[0] // 2
        self.stem = nn.Sequential(
            conv(4, stem, 3, 2), conv(stem, stem, 3, 2, groups=stem, act=False), conv(stem, channels[0])
        )
        self.down = nn.ModuleList(
            nn.Sequential(conv(c, c, 3, 2, groups=c, act=False), conv(c, wider))
            for c, wider in pairwise(channels)
        )
        self.stages = nn.ModuleList()
        for level, num_modules in enumerate(modules, start=2):
            layers = [layer for _ in range(num_modules) for layer in self._module(channels[:level])]
            self.stages.append(nn.Sequential(*layers))
        self.lateral = nn.ModuleList(conv(c, pyramid) for c in channels)
        self.smooth = nn.ModuleList(
            nn.Sequential(conv(pyramid, pyramid, 3, groups=pyramid, act=False), conv(pyramid, pyramid))
            for _ in channels[:3]
        )
        self.heatmap = nn.Conv2d(pyramid, 2, 1)
        self.offset = nn.Conv2d(pyramid, 4, 1)
        nn.init.constant_(self.heatmap.bias, -2.19)  # a heatmap begins at 0.1 everywhere

    @staticmethod
    def _module(channels):
        return Block(channels), Block(channels), Fusion(channels)

    def forward(self, images):
        xs = [self.stem(images)]
        for down, stage in zip(self.down, self.stages, strict=True):
            xs = stage([*xs, down(xs[-1])])
        top = self.lateral[3](xs[3])
        for level in (2, 1, 0):
            enlarged = functional.interpolate(top, xs[level].shape[-2:])
            top = self.smooth[level](self.lateral[level](xs[level]) + enlarged)
        return {"heatmaps": self.heatmap(top).float().sigmoid(), "offsets": self.offset(top).float()}


def gather_offsets(maps, cells):
    """The offsets (B, 2, 2) that maps (B, 4, h, w) have at cells (B, 2, 2) of x, y."""
    num_samples, _, _, width = maps.shape
    index = (cells[..., 1] * width + cells[..., 0])[..., None, None].expand(-1, -1, 2, 1)
    return maps.reshape(num_samples, 2, 2, -1).gather(3, index).squeeze(3)


def to_pixels(cells, offsets):
    return STRIDE * (cells + 0.5 + offsets)


def decode_predictions(outputs):
    """The landmarks in pixels, (B, 2, 2) of x, y: the highest cell of each heatmap with its offset."""
    heatmaps = outputs["heatmaps"]
    width = heatmaps.shape[-1]
    best = heatmaps.flatten(2).argmax(dim=2)
    cells = torch.stack([best % width, best // width], dim=2)
    return to_pixels(cells, gather_offsets(outputs["offsets"], cells))
