"""Pictures with two landmarks, batched on disk: the generator, the reader, and the targets.

A mode (``train``, ``val``) of a data folder is a row of numbered files; each holds a whole batch:

    images/train/train_0000.npy            float32 (B, 4, H, W): RGB in 0..1; 1 where it is not padding
    labels/train/train_0000_heatmaps.npy   float32 (B, 2, H/4, W/4): a Gaussian at the cell of each landmark
    labels/train/train_0000_offsets.npy    float32 (B, 4, H/4, W/4): dx, dy of a, dx, dy of b, at those cells
    labels/train/train_0000_weights.npy    float32 (B, H/4, W/4): how much of each cell is not padding
    labels/train/train_0000_meta.json      batch_size, grid_coords, offsets_meta, distractors, angles

A landmark at pixel (x, y) lies in cell ``grid`` with ``(x, y) = 4 * (grid + 0.5 + offset)``.
"""

import json
import math
import os
import shutil
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import Dataset, DistributedSampler, RandomSampler, Subset
from tqdm import tqdm

STRIDE, SIGMA, RADIUS = 4, 2.0, 6
LANDMARKS = ("a", "b")

#: scale -> (training files, validation files, samples per file, height, width)
SCALES = {"tiny": (4, 1, 16, 64, 128), "cpu": (10, 2, 64, 128, 256), "full": (56, 8, 256, 256, 512)}


class DataError(ValueError):
    """The data cannot be what it should be; the message names the file."""

    def __str__(self):
        """What was said; a worker's error comes with its traceback in front."""
        return super().__str__().rpartition("DataError: ")[2].strip()


# -- making the files ---------------------------------------------------------------------------------------


def disc(picture, x, y, radius, colour, mark):
    """Draw a disc with a mark on it ("ring", "cross" or "plain") into (H, W, 3) uint8."""
    height, width = picture.shape[:2]
    top, left = max(0, int(y - radius)), max(0, int(x - radius))
    bottom, right = min(height, int(y + radius) + 2), min(width, int(x + radius) + 2)
    dy, dx = np.ogrid[top:bottom, left:right]
    dy, dx = dy + 0.5 - y, dx + 0.5 - x
    distance = np.hypot(dx, dy) / radius
    patch = picture[top:bottom, left:right]
    patch[distance <= 1] = colour
    if mark == "ring":
        patch[(distance > 0.35) & (distance < 0.65)] = 255
    elif mark == "cross":
        patch[(np.minimum(abs(dx), abs(dy)) < 0.2 * radius) & (distance <= 1)] = 255


def draw_sample(rng, height, width):
    """Return (picture (H, W, 4) uint8, landmarks (2, 2) as x, y in pixels, number of distractors, angle)."""
    valid_height, valid_width = (int(size * rng.uniform(0.75, 1)) for size in (height, width))
    vertical = np.linspace(*rng.uniform(30, 120, 2), valid_height)[:, None, None]
    noise = rng.integers(0, 60, (valid_height, valid_width, 3))
    scene = (vertical + noise).astype(np.uint8)
    radius = height / rng.uniform(12, 16)
    num_distractors = int(rng.integers(1, 5))
    for _ in range(num_distractors):
        x, y = rng.uniform(0, valid_width), rng.uniform(0, valid_height)
        disc(scene, x, y, radius, rng.integers(0, 200, 3), "plain")
    angle, reach = rng.uniform(0, 2 * math.pi), rng.uniform(2.5, 4) * radius
    step = reach / 2 * np.array([math.cos(angle), math.sin(angle)])
    margin = abs(step) + 1
    middle = rng.uniform(margin, np.array([valid_width, valid_height]) - margin)
    landmarks = np.stack([middle - step, middle + step])
    disc(scene, *landmarks[0], radius, (235, 120, 20), "ring")
    disc(scene, *landmarks[1], radius, (20, 190, 215), "cross")
    picture = np.zeros((height, width, 4), np.uint8)
    picture[:valid_height, :valid_width, :3] = scene
    picture[:valid_height, :valid_width, 3] = 255
    return picture, landmarks, num_distractors, angle


def to_grid(landmarks):
    """Pixels (..., 2) to (cells as int64, offsets within the cell as float32)."""
    position = np.asarray(landmarks) / STRIDE
    cells = np.floor(position)
    return cells.astype(np.int64), (position - cells - 0.5).astype(np.float32)


def write_file(root, mode, index, rng, num_samples, height, width):
    """Write one batch of a mode."""
    drawn = [draw_sample(rng, height, width) for _ in range(num_samples)]
    pictures = np.stack([picture for picture, *_ in drawn]).transpose(0, 3, 1, 2)
    cells, offsets = to_grid(np.stack([landmarks for _, landmarks, *_ in drawn]))
    grid = (height // STRIDE, width // STRIDE)
    centres = torch.from_numpy(cells).float()
    weights = pictures[:, 3].reshape(num_samples, grid[0], STRIDE, grid[1], STRIDE) / np.float32(255)
    images, labels = Path(root, "images", mode), Path(root, "labels", mode)
    images.mkdir(parents=True, exist_ok=True)
    labels.mkdir(parents=True, exist_ok=True)
    name = f"{mode}_{index:04d}"
    np.save(images / f"{name}.npy", pictures / np.float32(255))
    np.save(labels / f"{name}_heatmaps.npy", draw_heatmaps(centres, grid).numpy())
    np.save(
        labels / f"{name}_offsets.npy",
        draw_offsets(torch.from_numpy(cells), torch.from_numpy(offsets), grid).numpy(),
    )
    np.save(labels / f"{name}_weights.npy", weights.mean(axis=(2, 4), dtype=np.float32))
    meta = {
        "batch_size": num_samples,
        "grid_coords": [dict(zip(LANDMARKS, pair.tolist(), strict=True)) for pair in cells],
        "offsets_meta": [dict(zip(LANDMARKS, pair.tolist(), strict=True)) for pair in offsets],
        "distractors": [count for *_, count, _ in drawn],
        "angles": [angle for *_, angle in drawn],
    }
    (labels / f"{name}_meta.json").write_text(json.dumps(meta))


def make_data(scale="cpu", seed=0, root=None, sizes=None):
    """Write the files of a scale once and return their folder; a finished folder is used again."""
    root = Path(root) if root else Path(__file__).parent / "data"
    folder = root / f"{scale}-seed{seed}"
    if folder.exists():
        return folder
    num_train, num_val, num_samples, height, width = sizes or SCALES[scale]
    partial = root / f"{folder.name}.{os.getpid()}.partial"
    files = [("train", index) for index in range(num_train)] + [("val", index) for index in range(num_val)]
    for mode, index in tqdm(files, desc="making data", unit="file", disable=None):
        rng = np.random.default_rng([seed, mode == "val", index])
        write_file(partial, mode, index, rng, num_samples, height, width)
    try:
        partial.rename(folder)
    except OSError:  # another process finished the same data first
        shutil.rmtree(partial)
    return folder


# -- targets ------------------------------------------------------------------------------------------------


def draw_heatmaps(centres, grid):
    """Gaussians around (B, 2, 2) centres (x, y in cells) as (B, 2, h, w), cut off at ``RADIUS`` cells."""
    height, width = grid
    x, y = centres[..., 0, None], centres[..., 1, None]
    dx = torch.arange(width, device=centres.device) - x
    dy = torch.arange(height, device=centres.device) - y
    near_x = (torch.arange(width, device=centres.device) - x.round()).abs() <= RADIUS
    near_y = (torch.arange(height, device=centres.device) - y.round()).abs() <= RADIUS
    square = dx.square()[..., None, :] + dy.square()[..., :, None]
    near = near_x[..., None, :] & near_y[..., :, None]
    return torch.where(near, torch.exp(-square / (2 * SIGMA**2)), square.new_zeros(()))


def draw_offsets(cells, offsets, grid):
    """Offsets (B, 2, 2) written at their cells of a map (B, 4, h, w); zero elsewhere."""
    num_samples, (height, width) = len(cells), grid
    maps = torch.zeros(num_samples, 2, 2, height * width, device=cells.device)
    index = (cells[..., 1] * width + cells[..., 0])[..., None, None].expand(-1, -1, 2, 1)
    return maps.scatter_(3, index, offsets[..., None]).reshape(num_samples, 4, height, width)


# -- reading ------------------------------------------------------------------------------------------------


def header(path):
    """Return (shape, dtype) of a .npy file whose size is what its header promises."""
    try:
        array = np.load(path, mmap_mode="r")
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} is truncated or no .npy file: {error}") from None
    return array.shape, array.dtype


def mean_of_cells(images):
    """How much of each cell is picture, cell by cell, from the padding channel of (B, 4, H, W)."""
    num_samples, _, height, width = images.shape
    weights = np.zeros((num_samples, height // STRIDE, width // STRIDE), np.float32)
    for b in range(num_samples):
        for i in range(height // STRIDE):
            for j in range(width // STRIDE):
                rows, columns = slice(i * STRIDE, (i + 1) * STRIDE), slice(j * STRIDE, (j + 1) * STRIDE)
                weights[b, i, j] = np.mean(images[b, 3, rows, columns])
    return weights


def load(path, **options):
    """The array of a .npy file, all of it finite: one that is not would train on without a word."""
    try:
        array = np.load(path, **options)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} cannot be read any more: {error}") from None
    with np.errstate(over="ignore", invalid="ignore"):
        if np.isfinite(array.sum()):  # one quick pass: what is not finite makes the sum so
            return array
    if not len(bad := np.argwhere(~np.isfinite(array))):
        return array
    where = tuple(bad[0].tolist())
    raise DataError(
        f"{path} has {len(bad)} values that are not finite, {array[where]} at {list(where)} the first: "
        "make the file anew or take the sample out"
    )


class NpyBatches(Dataset):
    """The files of one mode; an item is a whole file, so the loader's batch size is 1.

    ``mask_pool`` computes the weights from the pictures instead of reading them.
    """

    def __init__(self, root, mode, mask_pool=False):
        self.root, self.mode, self.mask_pool = Path(root), mode, mask_pool
        self.images = sorted((self.root / "images" / mode).glob(f"{mode}_*.npy"))
        if not self.images:
            raise DataError(f"no files {mode}_NNNN.npy in {self.root / 'images' / mode}")
        self.shape = header(self.images[0])[0]  # of the first file: all must have its height and width
        self.num_samples = sum(self._check(path) for path in self.images)

    def _check(self, images):
        """See that the four arrays and the note of a file agree; return its number of samples."""
        shape, dtype = header(images)
        if len(shape) != 4 or shape[1:] != (4, *self.shape[2:]) or any(s % 32 for s in shape[2:]):
            raise DataError(
                f"{images} has shape {shape}: expected (B, 4, H, W), H and W multiples of 32, all alike"
            )
        num_samples, _, height, width = shape
        grid = (height // STRIDE, width // STRIDE)
        expected = {"heatmaps": (2, *grid), "offsets": (4, *grid), "weights": grid}
        found = {images: (shape, dtype)}
        for kind, rest in expected.items():
            if kind == "weights" and self.mask_pool:
                continue
            path = self._label(images, f"{kind}.npy")
            found[path] = header(path)
            if found[path][0] != (num_samples, *rest):
                raise DataError(
                    f"{path} has shape {found[path][0]}: {(num_samples, *rest)} goes with {images.name}"
                )
        for path, (_, dtype) in found.items():
            if dtype != np.float32:
                raise DataError(f"{path} holds {dtype}: expected float32")
        cells, _ = self._meta(images, num_samples)
        if (cells < 0).any() or (cells >= [grid[1], grid[0]]).any():
            raise DataError(
                f"{self._label(images, 'meta.json')} has grid_coords outside of {grid[1]} x {grid[0]}"
            )
        return num_samples

    def _label(self, images, ending):
        return self.root / "labels" / self.mode / f"{images.stem}_{ending}"

    def _meta(self, images, num_samples):
        """Cells (B, 2, 2) int64 and offsets (B, 2, 2) float32 of a file."""
        path = self._label(images, "meta.json")
        try:
            meta = json.loads(path.read_text())
            cells, offsets = (
                [[row[name] for name in LANDMARKS] for row in meta[key]]
                for key in ("grid_coords", "offsets_meta")
            )
            cells, offsets = np.asarray(cells), np.asarray(offsets, np.float32)
            if cells.dtype.kind != "i":
                raise TypeError(f"grid_coords are {cells.dtype}: expected whole numbers")
        except FileNotFoundError:
            raise DataError(f"{path} is missing") from None
        except (ValueError, KeyError, TypeError) as error:
            raise DataError(f"{path} is not the note of a batch: {error!r}") from None
        for key, array in (("grid_coords", cells), ("offsets_meta", offsets)):
            if array.shape != (num_samples, 2, 2):
                raise DataError(f"{path} has {len(array)} {key} for {num_samples} samples, or not two each")
        if (bad := np.argwhere(~(abs(offsets) <= 0.5))).size:  # of a cell; not a number is neither
            sample, k, _ = bad[0]
            raise DataError(
                f"{path}: offsets_meta of sample {sample}, {LANDMARKS[k]}, is {offsets[sample, k].tolist()}: "
                "expected -0.5 to 0.5 of a cell each: make the file anew or take the sample out"
            )
        return cells, offsets

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        path = self.images[index]
        images = load(path)
        cells, offsets = self._meta(path, len(images))
        weights = mean_of_cells(images) if self.mask_pool else load(self._label(path, "weights.npy"))
        return {
            "images": torch.from_numpy(images),
            "heatmaps": torch.from_numpy(load(self._label(path, "heatmaps.npy"))),
            "offsets": torch.from_numpy(load(self._label(path, "offsets.npy"))),
            "weights": torch.from_numpy(weights),
            "cells": torch.from_numpy(cells),
            "cell_offsets": torch.from_numpy(offsets),
        }


class CompactBatches(NpyBatches):
    """The same batches in the least bytes that hold them: pictures as uint8, offsets only at their cells.

    Pictures are (B, H, W, 4), as the convolutions want them in memory. The weights are not among them: one
    pooling of the padding channel gives them on the device.
    """

    def __init__(self, root, mode):
        super().__init__(root, mode, mask_pool=True)

    def __getitem__(self, index):
        path = self.images[index]
        images = load(path, mmap_mode="r")
        with np.errstate(over="ignore", invalid="ignore"):  # what is no byte is found below
            pictures = np.rint(images * np.float32(255)).astype(np.uint8)
        if not np.array_equal(pictures / np.float32(255), images):
            raise DataError(f"{path} does not hold k/255: uint8 would change it (--ablate compact)")
        cells, offsets = self._meta(path, len(images))
        return {
            "images": torch.from_numpy(np.ascontiguousarray(pictures.transpose(0, 2, 3, 1))),
            "heatmaps": torch.from_numpy(load(self._label(path, "heatmaps.npy"))),
            "cells": torch.from_numpy(cells),
            "cell_offsets": torch.from_numpy(offsets),
        }


def in_order(train_set, val_set, seed):
    """The sampler of the training files, and the validation files of this rank."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return RandomSampler(train_set, generator=torch.Generator().manual_seed(seed)), val_set
    mine = range(dist.get_rank(), len(val_set), dist.get_world_size())
    return DistributedSampler(train_set, seed=seed), Subset(val_set, mine)
