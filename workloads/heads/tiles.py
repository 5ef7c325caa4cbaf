"""Gaussians on the screen to pixels, tile by tile, in plain torch operations.

Every Gaussian is listed, front to back, in each tile that it reaches; the lists are cut into rows of ROW
entries, the last one filled up, so that all of them are one array (ROW, rows, pixels of a tile). In it
- the logarithm of an entry's alpha is a quadratic polynomial of the pixel: one matrix product with the
  pixels' monomials about the tile's centre,
- what light is left is followed through all rows at once, entry after entry; rows of the same tile are
  joined by a running sum of its logarithm in float64,
and the backward pass, written out in ``Draw``, follows from the last entry to the first what is seen behind.
"""

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.functional import embedding_bag, pad

#: Edge of a tile in pixels, and entries in a row.
TILE, ROW = 8, 32
#: Less alpha than this is none, more than this is this (3D Gaussian Splatting, Kerbl et al. 2023).
ALPHA_MIN, ALPHA_MAX = 1 / 255, 0.99
LOG_NONE, LOG_MIN, LOG_MAX = -45.0, math.log(ALPHA_MIN), math.log(ALPHA_MAX)
CAPPED = ALPHA_MAX * (1 - 2e-7)
#: Less light than this reaches no row: what it would add is too small to be a normal number.
LIGHT_MIN = 1e-12
#: What is kept of large arrays between calls.
POOL_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class Lists:
    """Which Gaussian is where. Gaussians are counted over all cameras (C * N), tiles too."""

    num_tiles: int
    centres: torch.Tensor  # (rows, 2) centre of the row's tile, x and y in pixels
    row_tile: torch.Tensor  # (rows,)
    first_row: torch.Tensor  # (tiles,)
    entries: torch.Tensor  # (rows * ROW,) Gaussian of each slot, C * N where none
    seen: torch.Tensor  # (G,) Gaussians that are in a tile
    slots: torch.Tensor  # (pairs,) their slots, Gaussian by Gaussian
    offsets: torch.Tensor  # (G,) where in ``slots`` each begins


def sorted_with_order(keys):
    """Whole numbers from 0 to 2**31 in order, and where each was; equal ones stay in order."""
    packed = (keys.long() << 32) | torch.arange(len(keys), device=keys.device)
    if packed.device.type == "cpu":  # NumPy's sort is vectorized
        packed = torch.from_numpy(np.sort(packed.numpy()))
    else:
        packed = packed.sort().values
    return packed >> 32, packed & 0xFFFFFFFF


@torch.no_grad()
def make_lists(means2d, reach, depths, height, width):
    """Lists for means (C, N, 2), reach (C, 2, N) in pixels (negative: not seen) and depths (C, N)."""
    cameras, number = depths.shape
    device, across, down = depths.device, -(-width // TILE), -(-height // TILE)
    last = reach.new_tensor([[width - 1], [height - 1]])
    middle = means2d.transpose(1, 2) - 0.5
    low, high = (middle - reach).ceil().clamp_min(0), torch.minimum((middle + reach).floor(), last)
    seen = (low <= high).all(1).flatten().nonzero().squeeze(1)
    # Positive floats have the order of their bits.
    _, order = sorted_with_order(depths.flatten().index_select(0, seen).float().view(torch.int32))
    seen = seen.index_select(0, order)

    edges = torch.cat([low, high], 1).transpose(1, 2).reshape(-1, 4).index_select(0, seen)
    left, top, right, bottom = (edges.t() / TILE).long()
    columns = right - left + 1
    start = (seen // number * down + top) * across + left
    counts = columns * (bottom - top + 1)
    offsets = counts.cumsum(0) - counts
    owner = torch.repeat_interleave(counts)
    start, columns, first = torch.stack([start, columns, offsets], 1).index_select(0, owner).t()
    nth = torch.arange(len(owner), device=device) - first
    row = nth // columns
    tile, order = sorted_with_order(start + row * across + nth - row * columns)

    num_tiles = cameras * down * across
    counts = torch.bincount(tile, minlength=num_tiles)
    num_rows = (counts + ROW - 1) // ROW
    first_row, row_tile = num_rows.cumsum(0) - num_rows, torch.repeat_interleave(num_rows)
    # In front of a tile's first slot are as many empty ones as slots less pairs of all tiles before it.
    empty = first_row * ROW - counts.cumsum(0) + counts
    slots = torch.empty_like(tile)
    slots[order] = torch.arange(len(tile), device=device) + empty.index_select(0, tile)
    entries = torch.full((ROW * len(row_tile),), depths.numel(), device=device)
    entries[slots] = seen.index_select(0, owner)
    in_camera = row_tile % (down * across)
    centres = torch.stack([in_camera % across, in_camera // across], 1).to(depths) * TILE + TILE / 2
    return Lists(
        num_tiles=num_tiles, centres=centres, row_tile=row_tile, first_row=first_row,
        entries=entries, seen=seen, slots=slots, offsets=offsets,
    )  # fmt: skip


@functools.cache
def monomials(device, dtype):
    """(6, pixels): 1, x, y, -x²/2, -xy, -y²/2 of a tile's pixel centres, from the tile's centre."""
    at = torch.arange(TILE, device=device, dtype=dtype) + 0.5 - TILE / 2
    y, x = torch.meshgrid(at, at, indexing="ij")
    return torch.stack([torch.ones_like(x), x, y, -x * x / 2, -x * y, -y * y / 2]).flatten(1)


class Scratch:
    """A large array out of a pool, into which it returns when nobody refers to it any more.

    On a CPU the pages of a new array cost more than an operation on it.
    """

    pool: ClassVar[list[torch.Tensor]] = []

    def __init__(self, shape, like):
        size = math.prod(shape)
        self.block = None
        for place, block in enumerate(self.pool):
            if len(block) >= size and (block.dtype, block.device) == (like.dtype, like.device):
                self.block = self.pool.pop(place)
                break
        if self.block is None:
            self.block = like.new_empty(size + size // 4)
        self.array = self.block[:size].view(shape)

    def __del__(self):
        if self.block.device.type == "cpu":
            self.pool.append(self.block)
            while sum(block.nbytes for block in self.pool) > POOL_BYTES:
                del self.pool[0]


class Draw(Function):
    """Means (C, N, 2), conics (C, 3, N), opacities (N,) and colours (C, N, 3) to colour and light left.

    Colour is (C, 3, H, W), light left (C, 1, H, W).
    """

    @staticmethod
    def forward(ctx, means2d, conics, opacities, colors, lists, size):
        log_opacities = opacities.clamp_min(ALPHA_MIN / 2).log().expand(len(means2d), 1, -1)
        records = torch.cat([means2d.transpose(1, 2), conics, log_opacities, colors.transpose(1, 2)], 1)
        records = records.transpose(1, 2).reshape(-1, 9)
        empty = records.new_tensor([[0, 0, 0, 0, 0, -100, 0, 0, 0]])
        slots = torch.cat([records, empty]).index_select(0, lists.entries).view(-1, ROW, 9)
        shape, colors = slots.unbind(2)[:6], slots[..., 6:].contiguous()
        rows, pixels = len(slots), TILE * TILE
        x, y = (at - middle[:, None] for at, middle in zip(shape, lists.centres.t(), strict=False))
        coefs = polynomials(*(value.t() for value in (x, y, *shape[2:])))

        ctx.alphas, ctx.weights = (Scratch((ROW, rows, pixels), records) for _ in range(2))
        ctx.capped = (shape[5] > LOG_MAX).flatten().nonzero()[:, 0]
        passed = weigh(coefs, ctx.alphas.array, ctx.weights.array)
        picture = torch.bmm(colors.transpose(1, 2), ctx.weights.array.transpose(0, 1))

        total, ahead = sum_in_tiles(passed.log(), lists)
        entering = torch.threshold_(ahead.exp_(), LIGHT_MIN, 0)
        left = total.exp_()
        picture *= entering[:, None]
        ctx.lists, ctx.size = lists, size
        ctx.save_for_backward(
            conics, opacities, x.flatten(), y.flatten(), colors, entering, picture, left, passed
        )
        every_row = torch.arange(rows, device=records.device)
        drawn = embedding_bag(every_row, picture.flatten(1), lists.first_row, mode="sum")
        return to_picture(drawn, len(conics), size), to_picture(left, len(conics), size)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        with torch.autocast(grads[0].device.type, enabled=False):
            coefs, colors = Draw.through_light(ctx, *(to_tiles(grad) for grad in grads))
            return *Draw.to_gaussians(ctx, coefs, colors), None, None

    @staticmethod
    def through_light(ctx, grad, left_grad):
        """Gradients of the polynomials (6, slots) and of colours (rows, 3, ROW).

        With c = gradient . colour of an entry and r = gradient . what is seen behind it, that of log alpha is
        weight * (c - r), and r of the entry before is r + alpha * (c - r).
        """
        *_, colors, entering, picture, left, passed = ctx.saved_tensors
        lists, rows, pixels = ctx.lists, *picture.shape[::2]
        in_tile = grad.index_select(0, lists.row_tile)
        incoming = in_tile * entering[:, None]
        of_row = (in_tile * picture).sum(1)
        of_tile, ahead = sum_in_tiles(of_row, lists)
        of_tile += left * left_grad[:, 0]
        behind = (of_tile.index_select(0, lists.row_tile) - ahead - of_row) / passed
        alphas, weights = ctx.alphas.array, ctx.weights.array
        values = Scratch((rows, ROW, pixels), grad)
        logs = torch.bmm(colors, incoming, out=values.array)
        for alpha, weight, log in reversed([*zip(alphas, weights, logs.unbind(1), strict=True)]):
            log -= behind
            behind.addcmul_(alpha, log)
            log *= weight
        logs = logs.view(-1, pixels)
        if len(ctx.capped):  # no gradient where alpha is capped
            at = alphas[ctx.capped % ROW, ctx.capped // ROW]
            logs[ctx.capped] *= at < CAPPED
        coefs = torch.mm(monomials(grad.device, grad.dtype), logs.t())
        return coefs, torch.bmm(incoming, weights.permute(1, 2, 0))

    @staticmethod
    def to_gaussians(ctx, coefs, colors):
        """Gradients of the inputs: sums over each Gaussian's slots, taken of moments about its mean."""
        lists, (conics, opacities, x, y, *_) = ctx.lists, ctx.saved_tensors
        one, of_x, of_y, of_xx, of_xy, of_yy = coefs
        slots = coefs.new_empty(9, len(one))
        of_x = torch.addcmul(of_x, x, one, value=-1, out=slots[0])
        of_y = torch.addcmul(of_y, y, one, value=-1, out=slots[1])
        torch.addcmul(of_xx, x, coefs[1] + of_x, value=0.5, out=slots[2])
        torch.addcmul(torch.addcmul(of_xy, y, coefs[1]), x, of_y, out=slots[3])
        torch.addcmul(of_yy, y, coefs[2] + of_y, value=0.5, out=slots[4])
        slots[5] = one
        slots[6:] = colors.transpose(0, 1).flatten(1)
        # A bag of slots per Gaussian: an order of magnitude faster than adding at indices.
        sums = embedding_bag(lists.slots, slots.t().contiguous(), lists.offsets, mode="sum")
        cameras, _, number = conics.shape
        sums = sums.new_zeros(cameras * number, 9).index_copy_(0, lists.seen, sums).view(cameras, number, 9)
        x, y, (a, b, c) = sums[..., 0], sums[..., 1], conics.unbind(1)
        return (
            torch.stack([a * x + b * y, b * x + c * y], 2),
            sums[..., 2:5].transpose(1, 2),
            sums[..., 5].sum(0) / opacities.clamp_min(ALPHA_MIN / 2),
            sums[..., 6:],
        )


def to_picture(tiles, cameras, size):
    """Tiles (tiles, channels * pixels) to pictures (C, channels, H, W)."""
    across, down = -(-size[1] // TILE), -(-size[0] // TILE)
    parts = tiles.view(cameras, down, across, -1, TILE, TILE).permute(0, 3, 1, 4, 2, 5)
    return parts.reshape(cameras, -1, down * TILE, across * TILE)[..., : size[0], : size[1]]


def to_tiles(picture):
    """Pictures (C, channels, H, W), filled up with zeros, to tiles (tiles, channels, pixels)."""
    height, width = picture.shape[2:]
    picture = pad(picture, (0, -width % TILE, 0, -height % TILE))
    parts = picture.unflatten(3, (-1, TILE)).unflatten(2, (-1, TILE)).permute(0, 2, 4, 1, 3, 5)
    return parts.reshape(-1, picture.shape[1], TILE * TILE)


def weigh(coefs, alphas, weights):
    """Fill alphas and weights (ROW, rows, pixels); returns the part of light (rows, pixels) let through."""
    torch.mm(coefs.t(), monomials(coefs.device, coefs.dtype), out=alphas.view(-1, TILE * TILE))
    # Nothing here or in its products is too small to be a normal number: those are a hundred times as slow.
    alphas.clamp_(LOG_NONE, LOG_MAX).exp_()
    torch.threshold_(alphas, ALPHA_MIN, 0)
    light = torch.ones_like(alphas[0])
    for alpha, weight in zip(alphas, weights, strict=True):
        torch.mul(light, alpha, out=weight)
        light -= weight
    return light.clamp_min_(LIGHT_MIN)


def polynomials(x, y, a, b, c, log_opacity):
    """Log alpha's coefficients (6, slots) of ``monomials``; x and y are from the tile's centre."""
    in_x, in_y = a * x + b * y, b * x + c * y
    return torch.stack([log_opacity - (x * in_x + y * in_y) / 2, in_x, in_y, a, b, c]).flatten(1)


def sum_in_tiles(values, lists):
    """Sums of values (rows, pixels) over each tile, and over the tile's rows before each row."""
    running = values.new_zeros(len(values) + 1, values.shape[1], dtype=torch.float64)
    running[1:] = values.t().cumsum(1, dtype=torch.float64).t()
    at_first = running.index_select(0, lists.first_row)
    at_next = torch.cat([at_first[1:], running[-1:]])
    before = running[:-1] - at_first.index_select(0, lists.row_tile)
    return (at_next - at_first).to(values), before.to(values)
