"""Blurred video beside a spike camera: the generator, the file formats, and the frames.

    {train,val}/SEQ/blur/%08d.png        what a slow shutter saw: the mean of the scene while it moved
    {train,val}/SEQ/sharp/%08d.png       the scene in the middle of that time
    {train,val}/SEQ/spike/%08d.dat       T x h x w spikes of that time: one byte each, or one bit each
    {train,val}/SEQ/spike_vox/%08d.npy   optional: the same as NUM_BINS x h x w float32

One bit each is what the cameras write: bit b of byte i is pixel 8 i + b, the rows from the bottom up. A
file's size tells which of the two it is.
"""

import os
import shutil
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch.nn import functional
from tqdm import tqdm

NUM_BINS = 32
MODES = ("train", "val")
#: A pixel of the sensor fires when it has taken in this much light; white gives 1 per time step.
THRESHOLD = 1.6

#: scale -> (training sequences, validation sequences, frames, (height, width), (T, h, w) of the spikes)
SCALES = {
    "tiny": (2, 1, 8, (128, 160), (10, 66, 80)),
    "cpu": (4, 1, 25, (720, 1280), (10, 396, 640)),
    "full": (22, 2, 101, (720, 1280), (10, 396, 640)),
    # As many names as full, for one frame on disk: what a data set of this shape takes in memory.
    "links": (22, 1, 101, (720, 1280), (10, 396, 640)),
}


class DataError(ValueError):
    """The data cannot be what it should be; the message names the file."""

    def __str__(self):
        """What was said; a worker's error comes with its traceback in front."""
        return super().__str__().rpartition("DataError: ")[2].strip()


# -- making the files ---------------------------------------------------------------------------------------


class Scene:
    """A picture larger than the frame, which passes by at a speed of its own."""

    def __init__(self, rng, height, width):
        self.margin = max(8, height // 8)
        big = height + 2 * self.margin, width + 2 * self.margin
        rows, columns = np.ogrid[: big[0], : big[1]]
        waves = np.zeros((*big, 3), np.float32)
        for _ in range(6):
            fy, fx = rng.uniform(-0.7, 0.7, 2)
            wave = np.sin(fy * rows + fx * columns + rng.uniform(0, 6.3)).astype(np.float32)
            waves += wave[..., None] * rng.uniform(-0.12, 0.12, 3).astype(np.float32)
        for _ in range(12):
            y, x = rng.uniform(0, big[0]), rng.uniform(0, big[1])
            radius = rng.uniform(0.03, 0.15) * height
            inside = (rows - y) ** 2 + (columns - x) ** 2 < radius**2
            waves[inside] += rng.uniform(-0.4, 0.4, 3).astype(np.float32)
        self.canvas = np.clip(waves + 0.5, 0.02, 1)
        self.size = height, width
        self.speed = rng.uniform(0.5, 1.0, 2) * self.margin / 4  # pixels a frame
        self.phase = rng.uniform(0, 6.3, 2)

    def at(self, time):
        """The frame (H, W, 3) in 0..1 at a time in frames."""
        way = self.margin * np.sin(self.speed / self.margin * time + self.phase)
        y, x = np.rint(self.margin + way * 0.99).astype(int)
        return self.canvas[y : y + self.size[0], x : x + self.size[1]]


def draw_frames(rng, num_frames, size, spike_shape):
    """Yield (blur, sharp) as (H, W, 3) uint8 and the spikes (T, h, w) uint8 of one sequence."""
    scene = Scene(rng, *size)
    num_steps, height, width = spike_shape
    rows, columns = (np.arange(n) * full // n for n, full in ((height, size[0]), (width, size[1])))
    charge = rng.uniform(0, THRESHOLD, (height, width)).astype(np.float32)
    for frame in range(num_frames):
        light = np.zeros((*size, 3), np.float32)
        spikes = np.empty(spike_shape, np.uint8)
        for step in range(num_steps):
            seen = scene.at(frame + step / num_steps)
            light += seen
            charge += seen[rows[:, None], columns].mean(axis=2)
            spikes[step] = charge >= THRESHOLD
            charge -= THRESHOLD * spikes[step]
        sharp = scene.at(frame + 0.5)
        yield *(np.rint(255 * picture).astype(np.uint8) for picture in (light / num_steps, sharp)), spikes


def pack_spikes(spikes):
    """One bit per spike, as cameras write it: (T, h, w) to bytes."""
    return np.packbits(spikes[:, ::-1].reshape(len(spikes), -1), axis=1, bitorder="little").tobytes()


def write_frame(folder, number, blur, sharp, spikes, packed, voxels):
    name = f"{number:08d}"
    for kind, picture in (("blur", blur), ("sharp", sharp)):
        (folder / kind).mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / kind / f"{name}.png", compress_level=1)
    (folder / "spike").mkdir(exist_ok=True)
    (folder / "spike" / f"{name}.dat").write_bytes(pack_spikes(spikes) if packed else spikes.tobytes())
    if voxels:
        (folder / "spike_vox").mkdir(exist_ok=True)
        np.save(folder / "spike_vox" / f"{name}.npy", to_bins(spikes))


def link_frames(folder, num_sequences, num_frames):
    """Give the one frame of the one sequence in ``folder`` the names of a whole data set."""
    first = folder / "seq_000"
    for sequence in range(num_sequences):
        for kind in sorted(first.iterdir()):
            (folder / f"seq_{sequence:03d}" / kind.name).mkdir(parents=True, exist_ok=True)
            source = next(iter(sorted(kind.iterdir())))
            for number in range(num_frames):
                name = folder / f"seq_{sequence:03d}" / kind.name / f"{number:08d}{source.suffix}"
                if not name.exists():
                    os.link(source, name)


def make_data(scale="cpu", seed=0, root=None, packed=False, voxels=False, sizes=None):
    """Write the frames of a scale once and return their folder; a finished folder is used again."""
    root = Path(root) if root else Path(__file__).parent / "data"
    folder = root / f"{scale}-seed{seed}{'-bits' * packed}{'-vox' * voxels}"
    if folder.exists():
        return folder
    num_train, num_val, num_frames, size, spike_shape = sizes or SCALES[scale]
    linked = scale == "links"
    partial = root / f"{folder.name}.{os.getpid()}.partial"
    counts = {"train": 1 if linked else num_train, "val": num_val}
    drawn = 1 if linked else num_frames
    with tqdm(total=sum(counts.values()) * drawn, desc="making data", unit="frame", disable=None) as bar:
        for mode in MODES:
            for sequence in range(counts[mode]):
                rng = np.random.default_rng([seed, mode == "val", sequence])
                frames = draw_frames(rng, drawn, size, spike_shape)
                for number, (blur, sharp, spikes) in enumerate(frames):
                    place = partial / mode / f"seq_{sequence:03d}"
                    write_frame(place, number, blur, sharp, spikes, packed, voxels)
                    bar.update()
    if linked:
        link_frames(partial / "train", num_train, num_frames)
        link_frames(partial / "val", num_val, num_frames)
    try:
        partial.rename(folder)
    except OSError:  # another process finished the same data first
        shutil.rmtree(partial)
    return folder


# -- reading ------------------------------------------------------------------------------------------------


def read_picture(path):
    """A PNG as (H, W, 3) uint8."""
    try:
        with Image.open(path) as image:
            return np.array(image.convert("RGB"))
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except (OSError, SyntaxError) as error:
        raise DataError(f"{path} cannot be read as a picture: {error}") from None


def read_spikes(path, shape):
    """A .dat file as (T, h, w) uint8 of 0 and 1; its size tells a byte per spike from a bit per spike."""
    num_steps, height, width = shape
    try:
        found = np.fromfile(path, np.uint8)
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    if found.size == num_steps * height * width:
        if found.max() > 1:
            raise DataError(f"{path} holds a {found.max()}: spikes of a byte each are 0 or 1")
        return found.reshape(shape)
    if height * width % 8 == 0 and found.size == num_steps * height * width // 8:
        bits = np.unpackbits(found.reshape(num_steps, -1), axis=1, bitorder="little")
        return np.ascontiguousarray(bits.reshape(shape)[:, ::-1])
    raise DataError(
        f"{path} has {found.size:,} bytes: {num_steps} x {height} x {width} spikes (DATA.SPIKE_SHAPE) take "
        f"{num_steps * height * width:,} as bytes, {num_steps * height * width // 8:,} as bits"
    )


def to_bins(spikes):
    """Spikes (T, h, w) as (NUM_BINS, h, w) float32: of 32 bins, 10 time steps fill 10."""
    bins = np.zeros((NUM_BINS, *spikes.shape[1:]), np.float32)
    np.add.at(bins, np.arange(len(spikes)) * NUM_BINS // len(spikes), spikes.astype(np.float32))
    return bins


def to_voxels(bins, size):
    """Bins (NUM_BINS, h, w) float32 at the resolution of the pictures: (NUM_BINS, H, W)."""
    larger = functional.interpolate(torch.from_numpy(bins)[None], size=size, mode="bilinear")
    return larger[0].numpy()


class Frames:
    """The frames of a mode in the order of their names, sequence after sequence; they are not read here."""

    def __init__(self, root, mode, spike_shape):
        folder = Path(root) / mode
        self.spike_shape = tuple(spike_shape)
        self.sequences = sorted(path for path in folder.glob("*") if (path / "blur").is_dir())
        if not self.sequences:
            raise DataError(f"no SEQ/blur in {folder}")
        self.places = [self._names(sequence) for sequence in self.sequences]
        self.size = read_picture(self.path(0, 0, "blur")).shape[:2]

    def _names(self, sequence):
        names = [path.stem for path in sorted((sequence / "blur").glob("*.png"))]
        if not names:
            raise DataError(f"no .png in {sequence / 'blur'}")
        for kind, suffix in (("sharp", "png"), ("spike", "dat")):
            there = {path.stem for path in (sequence / kind).glob(f"*.{suffix}")}
            if missing := [name for name in names if name not in there]:
                raise DataError(f"{sequence / kind / f'{missing[0]}.{suffix}'} is missing")
        return names

    def path(self, sequence, number, kind):
        suffix = {"spike": "dat", "spike_vox": "npy"}.get(kind, "png")
        return self.sequences[sequence] / kind / f"{self.places[sequence][number]}.{suffix}"

    def picture(self, sequence, number, kind):
        path = self.path(sequence, number, kind)
        picture = read_picture(path)
        if picture.shape[:2] != self.size:
            raise DataError(f"{path} is {picture.shape[:2]}: the first one is {self.size}")
        return picture

    def spikes(self, sequence, number):
        return read_spikes(self.path(sequence, number, "spike"), self.spike_shape)

    def stored_bins(self, sequence, number):
        """What ``spike_vox`` holds for a frame."""
        path = self.path(sequence, number, "spike_vox")
        shape = (NUM_BINS, *self.spike_shape[1:])
        try:
            bins = np.load(path)
        except FileNotFoundError:
            raise DataError(f"{path} is missing: DATA.USE_PRECOMPUTED_VOXELS wants it") from None
        except (ValueError, EOFError, OSError) as error:
            raise DataError(f"{path} is truncated or no .npy file: {error}") from None
        if bins.shape != shape or bins.dtype != np.float32:
            raise DataError(f"{path} holds {bins.dtype} {bins.shape}: expected float32 {shape}")
        if not np.isfinite(bins).all():
            raise DataError(f"{path} holds values that are no finite numbers: write it anew from spike/")
        return bins
