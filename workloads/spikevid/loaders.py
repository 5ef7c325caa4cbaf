"""From frames to batches on the device: whole frames as found, bytes of a crop in cured."""

import bisect
from collections import OrderedDict
from itertools import accumulate

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, Sampler

from config import ConfigError
from data import NUM_BINS, DataError, Frames, to_bins, to_voxels

GIB = 1024**3
#: A cache without a limit stops here: it would fill any machine.
DICT_CAP_BYTES = 2 * GIB


# -- caches as found ----------------------------------------------------------------------------------------


class LRUCache:
    """Frames as float32, the least recently used thrown out; every worker has its own.

    Without a limit it is the dictionary the project began with, which stops at ``DICT_CAP_BYTES``.
    """

    def __init__(self, max_memory_gb):
        self.evicts = max_memory_gb is not None
        self.max_memory_bytes = int(max_memory_gb * GIB) if self.evicts else DICT_CAP_BYTES
        self.cache = OrderedDict()
        self.current_memory = self.hits = self.misses = 0

    def get(self, key):
        if key not in self.cache:
            self.misses += 1
            return None
        self.hits += 1
        self.cache.move_to_end(key)
        return {name: value.copy() for name, value in self.cache[key].items()}

    def put(self, key, frame):
        size = sum(value.nbytes for value in frame.values())
        if size > self.max_memory_bytes or (not self.evicts and self._full(size)):
            return
        while self._full(size):
            _, oldest = self.cache.popitem(last=False)
            self.current_memory -= sum(value.nbytes for value in oldest.values())
        self.cache[key] = frame
        self.current_memory += size

    def _full(self, size):
        return self.current_memory + size > self.max_memory_bytes


# -- datasets -----------------------------------------------------------------------------------------------


class Clips(Dataset):
    """Windows of ``clip_len`` frames of a sequence, one frame apart.

    An item is asked for as (number, draw): where the crop lies follows from the draw, so it does not matter
    which worker makes a sample.
    """

    def __init__(self, frames, clip_len, crop_size):
        self.frames, self.clip_len, self.crop_size = frames, clip_len, crop_size
        counts = [len(names) - clip_len + 1 for names in frames.places]
        if min(counts) < 1:
            short = frames.sequences[counts.index(min(counts))]
            raise DataError(f"{short} has {min(counts) + clip_len - 1} frames: DATA.CLIP_LEN is {clip_len}")
        self.ends = list(accumulate(counts))
        if any(size < crop_size or crop_size % 16 for size in frames.size):
            raise ConfigError(
                f"a crop of {crop_size} (TRAIN_CROP_SIZE) must be a multiple of 16 within {frames.size}"
            )

    def __len__(self):
        return self.ends[-1]

    def locate(self, number):
        """Return (sequence, first frame) of a clip."""
        sequence = bisect.bisect_right(self.ends, number)
        return sequence, number - (self.ends[sequence - 1] if sequence else 0)

    def place(self, size, draw):
        """Where a crop begins (top, left) in frames of a size."""
        room = [full - self.crop_size + 1 for full in size]
        return draw // room[1] % room[0], draw % room[1]

    def sequence_lengths(self):
        return [end - begin for begin, end in zip([0, *self.ends], self.ends, strict=False)]


class FloatClips(Clips):
    """As found: whole frames as float32, the spikes as voxels of the pictures' size, then the crop."""

    def __init__(self, frames, clip_len, crop_size, cache=None, precomputed=False):
        super().__init__(frames, clip_len, crop_size)
        self.cache, self.precomputed = cache, precomputed

    def __getitem__(self, key):
        number, draw = key
        sequence, first = self.locate(number)
        blur = self.load_picture(sequence, first)  # for its size alone; it is loaded again below
        top, left = self.place(blur.shape[:2], draw)
        clip = [self.load_frame(sequence, first + step) for step in range(self.clip_len)]
        return self.crop(clip, top, left)

    def load_picture(self, sequence, number, kind="blur"):
        return self.frames.picture(sequence, number, kind).astype(np.float32) / 255.0

    def load_frame(self, sequence, number):
        """{blur, sharp: (H, W, 3), voxel: (NUM_BINS, H, W)}, all float32."""
        if self.cache and (frame := self.cache.get((sequence, number))):
            return frame
        if self.precomputed:
            bins = self.frames.stored_bins(sequence, number)
        else:
            bins = to_bins(self.frames.spikes(sequence, number))
        frame = {
            "blur": self.load_picture(sequence, number, "blur"),
            "sharp": self.load_picture(sequence, number, "sharp"),
            "voxel": to_voxels(bins, self.frames.size),
        }
        if self.cache:
            self.cache.put((sequence, number), frame)
        return frame

    def crop(self, clip, top, left):
        rows, columns = slice(top, top + self.crop_size), slice(left, left + self.crop_size)
        sample = {
            kind: np.stack([frame[kind][rows, columns].transpose(2, 0, 1) for frame in clip])
            for kind in ("blur", "sharp")
        }
        sample["voxel"] = np.stack([frame["voxel"][:, rows, columns] for frame in clip])
        return {name: torch.from_numpy(value) for name, value in sample.items()}

    def print_cache_stats(self):
        """What the copy of the cache in this process knows: the workers fill their own."""
        if not self.cache:
            return
        reads = max(1, self.cache.hits + self.cache.misses)
        print(
            f"[{type(self).__name__}] Cache Stats:\n  - Size: {len(self.cache.cache)} items\n"
            f"  - Memory: {self.cache.current_memory / 2**20:.1f} / "
            f"{self.cache.max_memory_bytes / 2**20:.1f} MB\n"
            f"  - Hit Rate: {self.cache.hits / reads:.2%} "
            f"({self.cache.hits} hits / {self.cache.misses} misses)"
        )


class FrameBytes(Dataset):
    """Whole frames as they are stored, in bytes: what a cache keeps in a seventeenth of the room."""

    def __init__(self, frames):
        self.frames = frames
        self.places = [(s, n) for s, names in enumerate(frames.places) for n in range(len(names))]

    def __len__(self):
        return len(self.places)

    def __getitem__(self, number):
        place = self.places[number]
        return {
            "blur": torch.from_numpy(self.frames.picture(*place, "blur")),
            "sharp": torch.from_numpy(self.frames.picture(*place, "sharp")),
            "spike": torch.from_numpy(self.frames.spikes(*place)),
        }


class ByteClips(Clips):
    """Cured: crops of bytes; the batch becomes floats and voxels in ``Expand``, on the device."""

    def __init__(self, frames, clip_len, crop_size, store):
        super().__init__(frames, clip_len, crop_size)
        self.store = store
        self.first_of = [0, *accumulate(len(names) for names in frames.places)]
        sensor = frames.spike_shape[1:]
        self.window = [
            min(small, -(-crop_size * small // full) + 2)
            for small, full in zip(sensor, frames.size, strict=True)
        ]

    def __getitem__(self, key):
        number, draw = key
        sequence, first = self.locate(number)
        place = self.place(self.frames.size, draw)
        rows, columns = (slice(begin, begin + self.crop_size) for begin in place)
        begins = [self.sensor_begin(axis, place[axis]) for axis in (0, 1)]
        near = tuple(slice(begin, begin + size) for begin, size in zip(begins, self.window, strict=True))
        clip = [self.store[self.first_of[sequence] + first + step] for step in range(self.clip_len)]
        return {
            "blur": torch.stack([frame["blur"][rows, columns] for frame in clip]),
            "sharp": torch.stack([frame["sharp"][rows, columns] for frame in clip]),
            "spike": torch.stack([frame["spike"][:, near[0], near[1]] for frame in clip]),
            "place": torch.tensor([*place, *begins]),
            "clip": torch.tensor([number, *place]),
        }

    def sensor_begin(self, axis, begin):
        """The first pixel of the sensor that bears on a crop beginning at ``begin``."""
        small, full = self.frames.spike_shape[1 + axis], self.frames.size[axis]
        source = int(max(0.0, (begin + 0.5) * small / full - 0.5))
        return min(source, small - self.window[axis])

    def print_cache_stats(self):
        if hasattr(self.store, "print_cache_stats"):
            self.store.print_cache_stats()


class Expand:
    """On the device: bytes to floats, and the spikes of a crop to the voxels of its pixels.

    ``bilinear`` enlarging is two small matrix products, so a crop needs only the sensor's pixels around it.
    """

    def __init__(self, frames, crop_size, device):
        self.sizes, self.sensor = frames.size, frames.spike_shape[1:]
        self.bins = torch.arange(frames.spike_shape[0], device=device) * NUM_BINS // frames.spike_shape[0]
        self.offsets = torch.arange(crop_size, device=device)

    def __call__(self, batch):
        spikes, place = batch["spike"], batch["place"]
        rows = self.weights(0, place[:, 0], place[:, 2], spikes.shape[-2])[:, None, None]
        columns = self.weights(1, place[:, 1], place[:, 3], spikes.shape[-1])[:, None, None]
        larger = rows @ spikes.float() @ columns.transpose(-1, -2)
        voxel = larger.new_zeros(*larger.shape[:2], NUM_BINS, *larger.shape[-2:])
        return {
            "blur": batch["blur"].permute(0, 1, 4, 2, 3).float().div_(255),
            "sharp": batch["sharp"].permute(0, 1, 4, 2, 3).float().div_(255),
            "voxel": voxel.index_add_(2, self.bins, larger),
            "clip": batch["clip"],
        }

    def weights(self, axis, begin, sensor_begin, length):
        """(B, crop, length) weights with which the sensor's pixels make those of the pictures."""
        small, full = self.sensor[axis], self.sizes[axis]
        source = ((begin[:, None] + self.offsets + 0.5) * (small / full) - 0.5).clamp(min=0)
        low = source.long()
        high = (low + 1).clamp(max=small - 1)
        part = (source - low)[..., None]
        low, high = (
            functional.one_hot((at - sensor_begin[:, None]).clamp(0, length - 1), length)
            for at in (low, high)
        )
        return low * (1 - part) + high * part


# -- order --------------------------------------------------------------------------------------------------


class ClipSampler(Sampler):
    """This rank's share of an epoch as (number, draw).

    With ``group`` sequences at a time, frames that overlapping clips share are wanted again soon; 0 shuffles
    all clips alike. With ``num_crops`` a clip has so many crops in all, which come again; 0: always new ones.
    """

    def __init__(self, lengths, seed, group=0, num_crops=0):
        self.lengths, self.seed, self.group, self.num_crops = lengths, seed, group, num_crops
        self.epoch = 0
        ranked = dist.is_initialized()
        self.rank, self.world_size = (dist.get_rank(), dist.get_world_size()) if ranked else (0, 1)

    def order(self, generator):
        total = sum(self.lengths)
        if not self.group:
            return torch.randperm(total, generator=generator)
        ends = list(accumulate(self.lengths))
        sequences = [torch.arange(end - n, end) for n, end in zip(self.lengths, ends, strict=True)]
        shuffled = [sequences[s] for s in torch.randperm(len(sequences), generator=generator)]
        together = [torch.cat(shuffled[at : at + self.group]) for at in range(0, len(shuffled), self.group)]
        return torch.cat([clips[torch.randperm(len(clips), generator=generator)] for clips in together])

    def __iter__(self):
        generator = torch.Generator().manual_seed(self.seed + self.epoch)
        order = self.order(generator)
        draws = torch.randint(2**40, (len(order),), generator=generator)
        if self.num_crops:
            few = torch.Generator().manual_seed(self.seed)
            few = torch.randint(2**40, (len(order), self.num_crops), generator=few)
            draws = few[order, draws % self.num_crops]
        mine = slice(self.rank, len(order) // self.world_size * self.world_size, self.world_size)
        yield from zip(order[mine].tolist(), draws[mine].tolist(), strict=True)

    def __len__(self):
        return sum(self.lengths) // self.world_size


class InOrder(Sampler):
    """Every ``stride``-th clip with the crop in the middle: validation."""

    def __init__(self, clips):
        room = [full - clips.crop_size + 1 for full in clips.frames.size]
        self.keys = [(n, room[0] // 2 * room[1] + room[1] // 2) for n in range(0, len(clips), clips.clip_len)]

    def __iter__(self):
        return iter(self.keys)

    def __len__(self):
        return len(self.keys)


# -- loaders ------------------------------------------------------------------------------------------------


def make_loaders(args, config, root, device, crop_size, stores):
    """Return the training loader, its sampler, its dataset, and the validation loader.

    ``stores`` keeps what caches the frames for the next call, with another crop.
    """
    clip_len = config.count("DATA.CLIP_LEN", 5)
    spike_shape = config.counts("DATA.SPIKE_SHAPE", None, 3)
    batch_size = config.count("TRAIN.BATCH_SIZE", 1)
    frames = [Frames(root, mode, spike_shape) for mode in ("train", "val")]
    world_size = dist.get_world_size() if dist.is_initialized() else 1
    if "shared_bytes" in args.parts:
        for mode, one in zip(("train", "val"), frames, strict=True):
            if mode not in stores:
                stores[mode] = shared(one, config) if mode == "train" else FrameBytes(one)
        clips = [
            ByteClips(one, clip_len, crop_size, stores[mode])
            for mode, one in zip(stores, frames, strict=True)
        ]
    else:
        precomputed = config.switch("DATA.USE_PRECOMPUTED_VOXELS", False)
        clips = [FloatClips(one, clip_len, crop_size, own_cache(config), precomputed) for one in frames]
    group = config.count("DATA.GROUP_SEQUENCES", 2, 0) if "grouped" in args.parts else 0
    num_crops = config.count("DATA.CROPS_PER_CLIP", 0, 0)
    sampler = ClipSampler(clips[0].sequence_lengths(), args.seed, group, num_crops)
    common = {"pin_memory": config.switch("DATALOADER.PIN_MEMORY", True) and device.type == "cuda"}
    train = {"batch_size": batch_size, "drop_last": config.switch("DATALOADER.DROP_LAST", True), **common}
    if len(sampler) < batch_size:
        raise ConfigError(f"{config.path}: TRAIN.BATCH_SIZE is {batch_size}: a rank has {len(sampler)} clips")
    total = config.workers("DATALOADER.TOTAL_WORKERS", 2, world_size)
    persistent = config.switch("DATALOADER.PERSISTENT_WORKERS", False)

    def processes(workers, ahead):
        """How many, by the names of their keys, and what goes with any."""
        num_workers = total if config.get(workers) is None else config.workers(workers, 0)
        if not num_workers:
            return {"num_workers": 0}
        depth = config.count(ahead, 2)
        return {"num_workers": num_workers, "prefetch_factor": depth, "persistent_workers": persistent}

    train.update(processes("DATALOADER.TRAIN_WORKERS", "DATALOADER.TRAIN_PREFETCH_FACTOR"))
    val_processes = processes("DATALOADER.VAL_WORKERS", "DATALOADER.VAL_PREFETCH_FACTOR")
    val = {"batch_size": 1, "sampler": InOrder(clips[1]), **common}
    if "shared_bytes" not in args.parts:
        train_loader = DataLoader(clips[0], sampler=sampler, **train)
        return train_loader, sampler, clips[0], DataLoader(clips[1], **val, **val_processes)
    from hotloop.feed import DevicePrefetcher, Loader

    train_loader = Loader(clips[0], sampler=sampler, **train)
    # One clip a batch, out of memory: workers only where the configuration asks for them.
    asked = config.get("DATALOADER.VAL_WORKERS") is not None
    val_loader = Loader(clips[1], **val, **(val_processes if asked else {"num_workers": 0}))
    return (
        DevicePrefetcher(train_loader, device, transform=Expand(frames[0], crop_size, device)),
        sampler,
        clips[0],
        DevicePrefetcher(val_loader, device, transform=Expand(frames[1], crop_size, device)),
    )


def own_cache(config):
    """The project's cache; ``CACHE_SIZE_GB: null`` is its first form, without a limit."""
    if not config.switch("DATA.USE_RAM_CACHE", False):
        return None
    if config.get("DATA.CACHE_SIZE_GB", 1.5) is None:
        return LRUCache(None)
    return LRUCache(config.number("DATA.CACHE_SIZE_GB", 1.5))


def shared(frames, config):
    """The frames behind one cache for all workers and ranks, or straight from their files."""
    store = FrameBytes(frames)
    if not config.switch("DATA.USE_RAM_CACHE", True):
        return store
    try:
        from hotloop.feed import FeedError, cached
    except ImportError:
        raise ConfigError(
            "shared_bytes needs hotloop.feed: pip install hotloop, or --ablate shared_bytes"
        ) from None
    config.choice("DATA.CACHE_POLICY", "keep", ("keep",))
    size = int(config.number("DATA.CACHE_SIZE_GB", 4.0) * GIB)
    try:
        return cached(store, size)
    except FeedError as error:
        raise ConfigError(f"{config.path}: DATA.CACHE_SIZE_GB: {error}") from None
