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
#: What rounding may add to a logarithm of alpha, and more.
ROUNDING = 1e-3
#: Less light than this reaches no row: what it would add is too small to be a normal number.
LIGHT_MIN = 1e-12
#: What is kept of large arrays between calls.
POOL_BYTES = 256 << 20


@dataclass(frozen=True, kw_only=True)
class Lists:
    """Which Gaussian is where. Gaussians are counted over all cameras (C * N), tiles too."""

    listed: torch.Tensor  # (C, N) whether it is in a tile
    centres: torch.Tensor  # (2, rows) centre of the row's tile, x and y in pixels
    row_tile: torch.Tensor  # (rows,)
    bounds: torch.Tensor  # (tiles + 1,) where the rows of each tile begin, and the last ones end
    entries: torch.Tensor  # (rows * ROW,) Gaussian of each slot, C * N where none
    order: torch.Tensor  # (C * N,) Gaussians front to back
    slots: torch.Tensor  # (pairs,) their slots, Gaussian by Gaussian in that order
    offsets: torch.Tensor  # (C * N,) where in ``slots`` each begins

    def sum_rows(self, values):
        """Sums (tiles, ...) over the rows of each tile of values (rows, ...)."""
        rows = torch.arange(len(values), device=values.device)
        return embedding_bag(rows, values.flatten(1), self.bounds[:-1], mode="sum")


def sorted_with_order(keys):
    """Whole numbers below 2**31 in order, and where each was; equal ones stay in order."""
    packed = (keys.long() << 32) | torch.arange(len(keys), device=keys.device)
    if packed.device.type == "cpu":  # NumPy's sort is vectorized
        packed = torch.from_numpy(np.sort(packed.numpy()))
    else:
        packed = packed.sort().values
    return packed >> 32, packed & 0xFFFFFFFF


def positions(counts):
    """Of ``counts[i]`` things of each i: the how manieth of its i each one is, and i."""
    owner = torch.repeat_interleave(counts)
    first = (counts.cumsum(0) - counts).index_select(0, owner)
    return torch.arange(len(owner), device=owner.device) - first, owner


@torch.no_grad()
def make_lists(means2d, reach, depths, height, width):
    """Lists for means (C, N, 2), reach (C, 2, N) in pixels (negative: not seen) and depths (C, N)."""
    cameras = len(depths)
    device, across, down = depths.device, -(-width // TILE), -(-height // TILE)
    middle = means2d.transpose(1, 2) - 0.5
    low, high = (middle - reach).ceil_().clamp_min_(0), (middle + reach).floor_()
    for axis, size in enumerate((width, height)):
        high[:, axis].clamp_(max=size - 1)
    listed = (low <= high).all(1)
    # Positive floats have the order of their bits.
    _, order = sorted_with_order(depths.flatten().float().view(torch.int32))

    left, top, right, bottom = (torch.cat([low, high], 1) / TILE).long().unbind(1)
    start = torch.add(left, top, alpha=across)
    if cameras > 1:
        start += torch.arange(0, cameras * down * across, down * across, device=device)[:, None]
    each = torch.stack([start, right - left + 1, (bottom - top + 1) * listed]).flatten(1)
    start, columns, lines = (values.index_select(0, order) for values in each)
    counts = columns * lines
    # A Gaussian's tiles, line by line.
    line, owner = positions(lines)
    start = torch.add(start.index_select(0, owner), line, alpha=across)
    column, line = positions(columns.index_select(0, owner))
    tile, pair = sorted_with_order(start.index_select(0, line) + column)
    owner = owner.index_select(0, line)

    num_tiles = cameras * down * across
    begin = torch.searchsorted(tile, torch.arange(num_tiles + 1, device=device))
    num_rows = (begin.diff() + ROW - 1) // ROW
    row_tile = torch.repeat_interleave(num_rows)
    bounds = pad(num_rows.cumsum(0), (1, 0))
    # In front of a tile's first slot are as many empty ones as slots less pairs of all tiles before it.
    empty = torch.sub(bounds * ROW, begin)
    place = torch.arange(len(tile), device=device) + empty.index_select(0, tile)
    slots = torch.empty_like(tile).scatter_(0, pair, place)
    entries = torch.full((ROW * len(row_tile),), depths.numel(), device=device)
    entries.scatter_(0, slots, order.index_select(0, owner))
    return Lists(
        listed=listed, row_tile=row_tile, bounds=bounds, entries=entries, order=order, slots=slots,
        centres=tile_centres(cameras, down, across, device, depths.dtype).index_select(1, row_tile),
        offsets=counts.cumsum(0) - counts,
    )  # fmt: skip


@functools.lru_cache(maxsize=8)
def tile_centres(cameras, down, across, device, dtype):
    """(2, tiles): x and y in pixels, camera after camera."""
    y, x = ((torch.arange(n, device=device, dtype=dtype) + 0.5) * TILE for n in (down, across))
    return torch.stack([x.expand(cameras, down, -1), y[:, None].expand(cameras, -1, across)]).flatten(1)


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
        cameras, _, number = conics.shape
        rows, pixels = len(lists.row_tile), TILE * TILE
        shapes = conics.new_zeros(6, cameras * number + 1)
        shapes[5] = LOG_NONE  # the last one: where no Gaussian is
        given = shapes[:, :-1].view(6, cameras, number)
        given[:2], given[2:5] = means2d.movedim(2, 0), conics.transpose(0, 1)
        given[5] = opacities.clamp_min(ALPHA_MIN / 2).log()
        shapes = shapes.index_select(1, lists.entries.view(rows, ROW).t().flatten()).view(6, ROW, rows)
        away = shapes[:2] - lists.centres[:, None]
        colors = torch.cat([colors.reshape(-1, 3), colors.new_zeros(1, 3)])
        colors = colors.index_select(0, lists.entries).view(rows, ROW, 3)

        ctx.alphas, ctx.weights = (Scratch((ROW, rows, pixels), conics) for _ in range(2))
        passed, ctx.capped = weigh(away, shapes, ctx.alphas.array, ctx.weights.array)
        picture = torch.bmm(colors.transpose(1, 2), ctx.weights.array.transpose(0, 1))

        total, ahead = sum_in_tiles(passed.log(), lists)
        entering = torch.threshold_(ahead.exp_(), LIGHT_MIN, 0)
        left = total.exp_()
        picture *= entering[:, None]
        ctx.lists, ctx.size = lists, size
        away = away.permute(2, 1, 0).flatten(0, 1)  # (slots, 2)
        ctx.save_for_backward(conics, opacities, away, colors, entering, picture, left, passed)
        return to_picture(lists.sum_rows(picture), cameras, size), to_picture(left, cameras, size)

    @staticmethod
    @once_differentiable
    def backward(ctx, *grads):
        with torch.autocast(grads[0].device.type, enabled=False):
            coefs, colors = Draw.through_light(ctx, *(to_tiles(grad) for grad in grads))
            return *Draw.to_gaussians(ctx, coefs, colors), None, None

    @staticmethod
    def through_light(ctx, grad, left_grad):
        """Gradients of the polynomials (slots, 6) and of colours (slots, 3).

        With c = gradient . colour of an entry and r = gradient . what is seen behind it, that of log alpha is
        weight * (c - r), and r of the entry before is r + alpha * (c - r).
        """
        *_, colors, entering, picture, left, passed = ctx.saved_tensors
        lists, rows, pixels = ctx.lists, *picture.shape[::2]
        in_tile = grad.index_select(0, lists.row_tile)
        incoming = in_tile * entering[:, None]
        of_row = in_tile[:, 0] * picture[:, 0]
        for channel in (1, 2):
            of_row.addcmul_(in_tile[:, channel], picture[:, channel])
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
        capped, free = ctx.capped
        if len(capped):  # no gradient where alpha is capped
            slots = capped % rows * ROW + capped // rows
            logs.index_copy_(0, slots, logs.index_select(0, slots) * free)
        coefs = torch.mm(logs, monomials(grad.device, grad.dtype).t())
        of_colors = torch.bmm(incoming, weights.permute(1, 2, 0))
        return coefs, of_colors.transpose(1, 2).reshape(-1, 3)

    @staticmethod
    def to_gaussians(ctx, coefs, colors):
        """Gradients of the inputs: sums over each Gaussian's slots, taken of moments about its mean."""
        lists, (conics, opacities, away, *_) = ctx.lists, ctx.saved_tensors
        first, second = coefs[:, 1:3], coefs[:, 3::2]
        about_mean = torch.addcmul(first, away, coefs[:, :1], value=-1)
        second.addcmul_(away, first + about_mean, value=0.5)
        coefs[:, 4].addcmul_(away[:, 1], coefs[:, 1]).addcmul_(away[:, 0], about_mean[:, 1])
        first.copy_(about_mean)
        # A bag of slots per Gaussian: an order of magnitude faster than adding at indices.
        bags = (embedding_bag(lists.slots, table, lists.offsets, mode="sum") for table in (coefs, colors))
        sums, of_colors = (torch.empty_like(bag).index_copy_(0, lists.order, bag) for bag in bags)
        cameras, _, number = conics.shape
        one, x, y, xx, xy, yy = sums.view(cameras, number, 6).unbind(2)
        a, b, c = conics.unbind(1)
        return (
            torch.stack([a * x + b * y, b * x + c * y], 2),
            torch.stack([xx, xy, yy], 1),
            one.sum(0) / opacities.clamp_min(ALPHA_MIN / 2),
            of_colors.view(cameras, number, 3),
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


def weigh(away, shapes, alphas, weights):
    """Fill alphas and weights (ROW, rows, pixels).

    Returns the part of light (rows, pixels) let through, and the slots whose alpha is capped somewhere, with
    where it is not.
    """
    points = monomials(shapes.device, shapes.dtype)
    logs = torch.mm(polynomials(away, shapes).t(), points, out=alphas.view(-1, TILE * TILE))
    capped = (shapes[5] > LOG_MAX - ROUNDING).flatten().nonzero()[:, 0]
    free = None
    if len(capped):
        high = logs.index_select(0, capped)
        free = high < LOG_MAX
        logs.index_copy_(0, capped, high.clamp_(max=LOG_MAX))
    # An alpha that is none becomes one that adds nothing: neither it nor its products are too small to be
    # normal numbers, which are a hundred times as slow.
    torch.threshold_(alphas, LOG_MIN, LOG_NONE).exp_()
    light = torch.ones_like(alphas[0])
    for alpha, weight in zip(alphas, weights, strict=True):
        torch.mul(light, alpha, out=weight)
        light -= weight
    return light.clamp_min_(LIGHT_MIN), (capped, free)


def polynomials(away, shapes):
    """Log alpha's coefficients (6, slots) of ``monomials``.

    ``away``: means (2, ...) from the tile's centre; ``shapes``: x, y, conic and log opacity (6, ...).
    """
    coefs = torch.empty_like(shapes)
    torch.mul(shapes[2:4], away[0], out=coefs[1:3]).addcmul_(shapes[3:5], away[1])
    torch.addcmul(shapes[5], away[0], coefs[1], value=-0.5, out=coefs[0])
    coefs[0].addcmul_(away[1], coefs[2], value=-0.5)
    coefs[3:] = shapes[2:5]
    return coefs.flatten(1)


def sum_in_tiles(values, lists):
    """Sums of values (rows, pixels) over each tile, and over the tile's rows before each row."""
    running = values.new_empty(len(values) + 1, values.shape[1], dtype=torch.float64)
    running[0] = 0
    torch.cumsum(values, 0, dtype=torch.float64, out=running[1:])
    at_bounds = running.index_select(0, lists.bounds)
    before = running[:-1] - at_bounds.index_select(0, lists.row_tile)
    return at_bounds.diff(dim=0).to(values), before.to(values)
