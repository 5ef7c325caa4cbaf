"""Gaussians on the screen to pixels, tile by tile, in plain torch operations.

Every Gaussian is listed, front to back, in each tile that it reaches; the lists are cut into rows of ROW
entries, the last one filled up, so that all of them are one array (ROW, rows, pixels of a tile). In it
- the logarithm of an entry's alpha is a quadratic polynomial of the pixel: one matrix product with the
  pixels' monomials about the tile's centre,
- what light is left before each entry is exp of a sum of logarithms: one product with a triangle of ones,
  rows of the same tile being joined by a running sum in float64,
and the backward pass, written out in ``Composite``, has the same shape. Light left is not cut off at a small
value: it costs nothing here to go on.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch.autograd import Function
from torch.nn.functional import embedding_bag

#: Edge of a tile in pixels, and entries in a row.
TILE, ROW = 8, 16
#: Less alpha than this is none, more than this is this (3D Gaussian Splatting, Kerbl et al. 2023).
ALPHA_MIN, ALPHA_MAX = 1 / 255, 0.99
LOG_MAX = math.log(ALPHA_MAX)


@dataclass(frozen=True, kw_only=True)
class Lists:
    """Which Gaussian is where. Gaussians are counted over all cameras (C * N), tiles too."""

    num_tiles: int
    centres: torch.Tensor  # (rows, 2) centre of the row's tile, x and y in pixels
    row_tile: torch.Tensor  # (rows,)
    first_row: torch.Tensor  # (tiles,)
    entries: torch.Tensor  # (ROW * rows,) Gaussian of each slot, C * N where none; slot = place * rows + row
    seen: torch.Tensor  # (G,) Gaussians that are in a tile
    slots: torch.Tensor  # (pairs,) their slots, Gaussian by Gaussian
    offsets: torch.Tensor  # (G,) where in ``slots`` each begins


def sorted_with_order(keys):
    """Whole numbers from 0 to 2**31 in order, and where each was; equal ones stay in order."""
    packed = (keys.long() << 32) | torch.arange(len(keys), device=keys.device)
    if (
        packed.device.type == "cpu"
    ):  # a few thousand numbers: NumPy's vectorized sort takes a tenth of the time
        packed = torch.from_numpy(np.sort(packed.numpy()))
    else:
        packed = packed.sort().values
    return packed >> 32, packed & 0xFFFFFFFF


@torch.no_grad()
def make_lists(means2d, reach, depths, height, width):
    """Lists for means (C, N, 2), reach (C, N, 2) in pixels (negative: not seen) and depths (C, N)."""
    cameras, device = len(means2d), means2d.device
    last_pixel = torch.tensor([width - 1, height - 1], device=device, dtype=means2d.dtype)
    low = (means2d - reach - 0.5).ceil().clamp_min(0).flatten(0, 1)
    high = torch.minimum((means2d + reach - 0.5).floor(), last_pixel).flatten(0, 1)
    seen = (low <= high).all(1).nonzero().squeeze(1)
    # Positive floats have the order of their bits.
    _, order = sorted_with_order(depths.flatten()[seen].float().view(torch.int32))
    seen = seen[order]

    across, down = -(-width // TILE), -(-height // TILE)
    first = (low[seen] / TILE).long()
    span = (high[seen] / TILE).long() - first + 1
    start = (seen // depths.shape[1] * down + first[:, 1]) * across + first[:, 0]
    counts = span.prod(1)
    offsets = counts.cumsum(0) - counts
    owner = torch.repeat_interleave(counts)
    nth = torch.arange(len(owner), device=device) - offsets[owner]
    columns = span[:, 0][owner]
    row = nth // columns
    tile, order = sorted_with_order(start[owner] + row * across + nth - row * columns)

    num_tiles = cameras * down * across
    counts = torch.bincount(tile, minlength=num_tiles)
    num_rows = -(-counts // ROW)
    first_row, row_tile = num_rows.cumsum(0) - num_rows, torch.repeat_interleave(num_rows)
    rank = torch.arange(len(tile), device=device) - (counts.cumsum(0) - counts)[tile]
    slots = torch.empty_like(tile)
    slots[order] = rank % ROW * len(row_tile) + first_row[tile] + rank // ROW
    entries = torch.full((ROW * len(row_tile),), depths.numel(), device=device)
    entries[slots] = seen[owner]
    in_camera = row_tile % (down * across)
    centres = torch.stack([in_camera % across, in_camera // across], 1).to(means2d) * TILE + TILE / 2
    return Lists(
        num_tiles=num_tiles, centres=centres, row_tile=row_tile, first_row=first_row,
        entries=entries, seen=seen, slots=slots, offsets=offsets,
    )  # fmt: skip


class Gather(Function):
    """Records (C * N, K) to those of the slots (ROW * rows, K); ``empty`` (1, K) where no Gaussian is."""

    @staticmethod
    def forward(ctx, records, empty, lists):
        ctx.lists, ctx.shape = lists, records.shape
        return torch.cat([records, empty]).index_select(0, lists.entries)

    @staticmethod
    def backward(ctx, grad):
        lists = ctx.lists
        found = grad.new_zeros(ctx.shape)
        # A bag of slots per Gaussian: an order of magnitude faster than adding at indices.
        found[lists.seen] = embedding_bag(lists.slots, grad, lists.offsets, mode="sum")
        return found, None, None


def monomials(like):
    """(6, pixels): 1, x, y, -x²/2, -xy, -y²/2 of a tile's pixel centres, from the tile's centre."""
    at = torch.arange(TILE, device=like.device, dtype=like.dtype) + 0.5 - TILE / 2
    y, x = torch.meshgrid(at, at, indexing="ij")
    return torch.stack([torch.ones_like(x), x, y, -x * x / 2, -x * y, -y * y / 2]).flatten(1)


def coefficients(records, centres):
    """Of the logarithm of alpha in ``monomials``, (slots, 6), from (x, y, conic a, b, c, log of opacity)."""
    x, y, a, b, c, log_opacity = records.unbind(1)
    from_centre = (torch.stack([x, y], 1).view(ROW, -1, 2) - centres).view(-1, 2)
    x, y = from_centre.unbind(1)
    in_x, in_y = a * x + b * y, b * x + c * y
    constant = log_opacity - (x * in_x + y * in_y) / 2
    return torch.stack([constant, in_x, in_y, a, b, c], 1)


class Composite(Function):
    """Coefficients (slots, 6) and colours (slots, 3) to tiles (tiles, 4, pixels): colour and light left."""

    @staticmethod
    def forward(ctx, coefs, colors, lists):
        rows, pixels = len(lists.row_tile), TILE * TILE
        basis = monomials(coefs)
        alpha = torch.mm(coefs, basis).view(ROW, rows, pixels)
        capped = alpha > LOG_MAX
        # Bounded below as well: numbers too small to be normal are a hundred times as slow.
        alpha = torch.threshold_(alpha.clamp_(-20, LOG_MAX).exp_(), ALPHA_MIN, 0)
        passed = 1 - alpha
        triangle = torch.ones(ROW + 1, ROW, device=coefs.device, dtype=coefs.dtype).tril_(-1)
        before = torch.mm(triangle, passed.log().view(ROW, -1)).view(ROW + 1, rows, pixels)
        in_row = before[-1].double()
        before_row = in_row.cumsum(0) - in_row
        before_row = before_row - before_row[lists.first_row[lists.row_tile]]
        entering = torch.threshold_(before_row.exp_(), 1e-20, 0).to(coefs)
        left = sum_rows(before[-1], lists).exp_()
        before.exp_()
        weights = before[:-1] - before[1:]
        by_row = colors.view(ROW, rows, 3)
        picture = torch.bmm(by_row.permute(1, 2, 0), weights.transpose(0, 1)) * entering[:, None]
        ctx.lists = lists
        ctx.save_for_backward(by_row, weights, alpha.div_(passed), capped, entering, picture, left)
        return torch.cat([sum_rows(picture.flatten(1), lists), left], 1).view(-1, 4, pixels)

    @staticmethod
    def backward(ctx, grad):
        with torch.autocast(grad.device.type, enabled=False):
            return Composite.gradients(ctx, grad)

    @staticmethod
    def gradients(ctx, grad):
        """With v = weight * (gradient . colour), of log alpha: v - alpha / (1 - alpha) * sum of v behind."""
        by_row, weights, odds, capped, entering, picture, left = ctx.saved_tensors
        lists = ctx.lists
        places, rows, pixels = weights.shape
        in_tile = grad[lists.row_tile, :3]
        of_row = (in_tile * picture).sum(1).double()
        incoming = in_tile * entering[:, None]

        values = weights.new_empty(places + 1, rows, pixels)
        torch.mul(torch.bmm(by_row.transpose(0, 1), incoming).transpose(0, 1), weights, out=values[:-1])
        behind = of_row.cumsum(0)
        last = torch.searchsorted(lists.row_tile, lists.row_tile, right=True) - 1
        values[-1] = (behind[last] - behind).to(grad) + (left * grad[:, 3])[lists.row_tile]
        triangle = torch.ones(places, places + 1, device=grad.device, dtype=grad.dtype).triu_(1)
        behind = torch.mm(triangle, values.view(places + 1, -1)).view_as(weights)
        exponents = torch.addcmul(values[:-1], odds, behind, value=-1).masked_fill_(capped, 0)

        coefs = exponents.view(-1, pixels) @ monomials(grad).T
        colors = torch.bmm(incoming, weights.permute(1, 2, 0)).permute(2, 0, 1).reshape(-1, 3)
        return coefs, colors, None


def sum_rows(rows, lists):
    """Sums (tiles, K) over the rows (rows, K) of each tile."""
    return embedding_bag(torch.arange(len(rows), device=rows.device), rows, lists.first_row, mode="sum")


def composite(lists, means2d, conics, opacities, colors, height, width):
    """Pictures (C, 4, H, W): colour and light left, of Gaussians (C, N, ...) on the screen."""
    cameras = len(means2d)
    log_opacities = opacities.clamp_min(ALPHA_MIN / 2).log()[:, None].expand(cameras, -1, -1)
    records = torch.cat([means2d, conics, log_opacities, colors], 2).flatten(0, 1)
    empty = records.new_tensor([[0, 0, 0, 0, 0, -100, 0, 0, 0]])
    records = Gather.apply(records, empty, lists)
    tiles = Composite.apply(coefficients(records[:, :6], lists.centres), records[:, 6:], lists)
    across, down = -(-width // TILE), -(-height // TILE)
    pictures = tiles.view(cameras, down, across, 4, TILE, TILE).permute(0, 3, 1, 4, 2, 5)
    return pictures.reshape(cameras, 4, down * TILE, across * TILE)[..., :height, :width]
