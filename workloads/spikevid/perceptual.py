"""The perceptual loss: pictures compared by what a VGG-like network sees in them, at its layer relu3_3."""

from itertools import pairwise

import torch
from torch import nn
from torch.nn import functional

#: Target features that are kept, at most.
KEPT_BYTES = 1 << 30


class PerceptualLoss(nn.Module):
    """Mean absolute difference of features of found and wanted frames (B, T, 3, H, W).

    VGG16 as far as relu3_3, with ``channels`` at full size and random weights, always the same: none are
    downloaded. As found every step computes the target's features. ``keep``: once for a crop that comes
    again, which ``clip`` (B, 3), its number and place, tells.
    """

    def __init__(self, channels=64, keep=False):
        super().__init__()
        sizes = [3, *(channels,) * 2, *(2 * channels,) * 2, *(4 * channels,) * 3]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            convs = [nn.Conv2d(a, b, 3, padding=1) for a, b in pairwise(sizes)]
            for conv in convs:
                nn.init.kaiming_normal_(conv.weight)
                nn.init.zeros_(conv.bias)
        layers = [layer for conv in convs for layer in (conv, nn.ReLU())]
        layers[4:4], layers[9:9] = [nn.MaxPool2d(2)], [nn.MaxPool2d(2)]
        self.features = nn.Sequential(*layers).requires_grad_(False)
        self.register_buffer("mean", torch.tensor([0.485, 0.456, 0.406])[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor([0.229, 0.224, 0.225])[:, None, None], persistent=False)
        self.keep, self.kept, self.kept_bytes, self.hits = keep, {}, 0, 0

    def forward(self, found, wanted, clip=None):
        target = self.target(wanted, clip) if self.keep else self.see(wanted)
        return functional.l1_loss(self.see(found), target)

    def see(self, frames):
        """Features (B, T, C, H / 4, W / 4)."""
        return self.features((frames.flatten(0, 1) - self.mean) / self.std).unflatten(0, frames.shape[:2])

    @torch.no_grad()
    def target(self, wanted, clip):
        if clip is None:
            return self.see(wanted)
        return torch.cat(
            [self.one(frames[None], tuple(key)) for frames, key in zip(wanted, clip.tolist(), strict=True)]
        )

    def one(self, frames, key):
        """Features of one clip's crop, kept while there is room."""
        if key in self.kept:
            self.hits += 1
            return self.kept[key]
        seen = self.see(frames)
        if self.kept_bytes + seen.nbytes <= KEPT_BYTES:
            self.kept[key] = seen
            self.kept_bytes += seen.nbytes
        return seen
